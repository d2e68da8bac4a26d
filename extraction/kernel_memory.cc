// Features of GPU programs: threads, pipelines and memory of each CUDA kernel, and the memory accesses of a warp.
//
// A CUDA kernel is the outermost loop that is bound to threads. In lowered programs, where attributes bind the threads,
// there is none.
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reflect_walker.h"

namespace tvm_gnn_cost {
namespace {

constexpr int64_t kWarp = 32;         // threads
constexpr int64_t kSector = 32;       // bytes: the unit of global memory accesses
constexpr int64_t kBanks = 32;        // of shared memory
constexpr int64_t kBankBytes = 4;     // width of a bank
constexpr int64_t kVectorBytes = 16;  // the largest load or store of a thread

bool StartsWith(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// floor(x); 0 for values that no real program has.
int64_t Floor(double x) { return std::fabs(x) < 1e12 ? static_cast<int64_t>(std::floor(x)) : 0; }

// The range of an index, from the minimum to the maximum.
struct Span {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  bool IsEmpty() const { return low > high; }
  double Count() const { return std::floor(high) - std::floor(low) + 1; }
  void Include(double least, double greatest) {
    low = std::min(low, least);
    high = std::max(high, greatest);
  }
};

// The part of a buffer that a block (shared memory) or a thread (registers) touches. TVM's pass
// CompactBufferAllocation shrinks the buffer to it.
struct Tile {
  int32_t buffer;
  const KernelAccess* first;
  size_t common;  // loops that are around all of its accesses; it is allocated anew inside them
  std::vector<Span> stored, loaded;
  std::vector<double> lows, strides;
  double bytes = 0;
};

// Whether this loop moves the address within one allocation; `place` is its position among the loops around the
// access.
bool MovesWithin(const Tile& tile, Memory memory, const Loop& loop, size_t place) {
  switch (loop.bound.thread) {
    case Thread::kBlock: return false;
    case Thread::kThread: return memory == Memory::kShared;
    case Thread::kVirtual: return memory == Memory::kShared || place >= tile.common;
    default: return place >= tile.common;
  }
}

void AddAccess(const Kernel& kernel, const KernelAccess& access, Memory memory, Tile& tile) {
  tile.stored.resize(std::max(tile.stored.size(), access.rank));
  tile.loaded.resize(tile.stored.size());
  for (size_t dim = 0; dim < access.rank; ++dim) {
    double low = kernel.bases[access.bases + dim];
    double high = low;
    for (size_t i = access.splits; i < access.splits + access.split_count; ++i) {
      const Split& split = kernel.splits[i];
      if (static_cast<size_t>(split.dim) != dim) continue;
      if (split.loop >= 0) {
        const auto place = static_cast<size_t>(split.loop);
        if (!MovesWithin(tile, memory, kernel.loops[access.loops + place], place)) continue;
      }
      (split.scale < 0 ? low : high) += split.scale * (split.extent - 1);
    }
    if (access.stores) tile.stored[dim].Include(low, high);
    if (access.loads) tile.loaded[dim].Include(low, high);
  }
}

// Row-major layout of the tile. Where stores and loads span different parts, predicates restrict the larger one, since
// nothing is loaded that was not stored.
void LayOut(const Kernel& kernel, const Buffer& buffer, Tile& tile) {
  const size_t rank = tile.stored.size();
  tile.lows.resize(rank);
  tile.strides.resize(rank);
  double stride = 1;
  for (size_t dim = rank; dim-- > 0;) {
    const Span& stored = tile.stored[dim];
    const Span& loaded = tile.loaded[dim];
    const Span& span = stored.IsEmpty() || (!loaded.IsEmpty() && loaded.Count() < stored.Count()) ? loaded : stored;
    double extent = std::max(1.0, span.Count());
    if (buffer.shape[dim] > 0) extent = std::min(extent, static_cast<double>(buffer.shape[dim]));
    for (const StrideAlignment& one : buffer.alignments) {
      if (one.dim != static_cast<double>(dim) || one.factor <= 0) continue;
      stride += std::fmod(one.factor + one.offset - std::fmod(stride, one.factor), one.factor);
    }
    tile.lows[dim] = span.IsEmpty() ? 0 : std::floor(span.low);
    tile.strides[dim] = stride;
    stride *= extent;
  }
  tile.bytes = std::max(0.0, stride * buffer.element_bytes / buffer.holders);
  if (buffer.memory != Memory::kRegisters) return;
  // A thread has the registers of all of its virtual threads.
  for (size_t place = 0; place < tile.common; ++place) {
    const Loop& loop = kernel.loops[tile.first->loops + place];
    if (loop.bound.thread == Thread::kVirtual) tile.bytes *= static_cast<double>(loop.extent);
  }
}

double Product(const std::array<int64_t, 3>& extents) {
  double product = 1;
  for (const int64_t extent : extents) product *= static_cast<double>(extent);
  return product;
}

// The simultaneous accesses of the first warp of a block, with all other loops at their first iteration.
class WarpAccess {
 public:
  WarpAccess(const Kernel& kernel, const KernelAccess& access, const Buffer& buffer, const Tile* tile) {
    const auto stride_of = [&](size_t dim) { return tile == nullptr ? buffer.strides[dim] : tile->strides[dim]; };
    double start = 0;
    for (size_t dim = 0; dim < access.rank; ++dim) {
      start += (kernel.bases[access.bases + dim] - (tile == nullptr ? 0 : tile->lows[dim])) * stride_of(dim);
    }
    const Loop* loops = kernel.loops.data() + access.loops;
    const Split* splits = kernel.splits.data() + access.splits;
    int32_t vector = -1;
    for (size_t place = 0; place < access.loop_count; ++place) {
      if (loops[place].kind == kVectorized && loops[place].extent > 1) vector = static_cast<int32_t>(place);
    }
    double vector_stride = 0;
    std::vector<const Split*> moving;
    for (size_t i = 0; i < access.split_count; ++i) {
      const Split& split = splits[i];
      if (split.loop < 0) continue;
      const ThreadAxis bound = loops[split.loop].bound;
      const double step = split.scale * stride_of(static_cast<size_t>(split.dim));
      if (split.loop == vector && split.lower == 1) vector_stride += step;
      if (bound.thread != Thread::kThread) continue;
      moving.push_back(&split);
      if (bound.axis == 0 && split.lower == 1) thread_stride_ += step * buffer.element_bytes;
    }
    // Contiguous elements of a thread are a single access.
    const auto item = std::max<int64_t>(1, Floor(buffer.element_bytes));
    const bool is_vector = vector_stride == 1;
    bytes_ = is_vector ? std::max(item, std::min(item * loops[vector].extent, kVectorBytes)) : item;

    const auto& block = kernel.extents[static_cast<size_t>(Thread::kThread)];
    const auto lanes = static_cast<int64_t>(std::min<double>(kWarp, Product(block)));
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t threads[3] = {lane % block[0], lane / block[0] % block[1], lane / block[0] / block[1]};
      double offset = start;
      for (const Split* split : moving) {
        const int64_t thread = threads[loops[split->loop].bound.axis];
        const auto extent = std::max<int64_t>(1, Floor(split->extent));
        offset += static_cast<double>(thread / split->lower % extent) * split->scale *
                  stride_of(static_cast<size_t>(split->dim));
      }
      begins_.push_back(Floor(offset) * item);
    }
  }

  // Bytes by which the next thread along x moves the address.
  double thread_stride() const { return thread_stride_; }

  size_t Sectors() const { return Units(0, begins_.size(), kSector).size(); }

  // The maximum number of distinct words in a bank that a transaction accesses. A transaction is the whole warp, or as
  // many threads as access one word per bank.
  size_t BankConflicts() const {
    const auto part = static_cast<size_t>(std::max<int64_t>(1, kBanks / std::max<int64_t>(1, bytes_ / kBankBytes)));
    size_t most = 0;
    for (size_t lane = 0; lane < begins_.size(); lane += part) {
      std::array<size_t, kBanks> words{};
      for (const int64_t word : Units(lane, std::min(begins_.size(), lane + part), kBankBytes)) {
        size_t& asked = words[static_cast<size_t>((word % kBanks + kBanks) % kBanks)];
        most = std::max(most, ++asked);
      }
    }
    return most;
  }

 private:
  // The distinct units of the given number of bytes that the lanes access.
  std::vector<int64_t> Units(size_t lane, size_t end, int64_t unit) const {
    std::vector<int64_t> found;
    const auto number = [unit](int64_t byte) { return (byte - (byte % unit + unit) % unit) / unit; };
    for (; lane < end; ++lane) {
      const int64_t last = number(begins_[lane] + bytes_ - 1);
      for (int64_t one = number(begins_[lane]); one <= last; ++one) found.push_back(one);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  double thread_stride_ = 0;
  int64_t bytes_ = 0;  // that each lane accesses
  std::vector<int64_t> begins_;
};

}  // namespace

ThreadAxis Walker::ThreadAxisOf(const TVMFFIObject* loop, const TypePlan& plan) {
  const TVMFFIObject* binding = ReadOptional(loop, plan, Name::kThreadBinding);
  if (binding == nullptr) return {};
  const std::string tag = ReadString(binding, plans_(binding->type_index), Name::kThreadTag);
  ThreadAxis found;
  if (StartsWith(tag, "blockIdx.")) found.thread = Thread::kBlock;
  if (StartsWith(tag, "threadIdx.")) found.thread = Thread::kThread;
  if (StartsWith(tag, "vthread") || tag == "cthread") found.thread = Thread::kVirtual;
  if (!tag.empty() && (tag.back() == 'y' || tag.back() == 'z')) found.axis = tag.back() == 'y' ? 1 : 2;
  return found;
}

int32_t Walker::NewKernelRow() {
  const auto row = static_cast<int32_t>(out_.gpus.size()) / kGpuSize;
  out_.gpus.resize(out_.gpus.size() + kGpuSize, 0.0f);
  return row;
}

void Walker::OpenKernel() {
  kernel_.row = NewKernelRow();
  for (auto& axes : kernel_.extents) axes.fill(1);
  kernel_.stages = 1;
  kernel_.async_stages = 0;
  kernel_.accesses.clear();
  kernel_.loops.clear();
  kernel_.splits.clear();
  kernel_.bases.clear();
}

// Whether the annotation is that of a software pipeline. The longest of several pipelines counts.
bool Walker::ReadPipeline(const std::string& name, const TVMFFIObject* stages) {
  const bool is_stage = name == "software_pipeline_stage";
  if (!is_stage && name != "software_pipeline_async_stages") return false;
  if (stages == nullptr || plans_(stages->type_index).kind != Kind::kSequence) return false;
  const TVMFFISeqCell& cell = Sequence(stages);
  if (!is_stage) {
    kernel_.async_stages = std::max(kernel_.async_stages, static_cast<double>(cell.size));
    return true;
  }
  for (int64_t i = 0; i < cell.size; ++i) {
    const double stage = IntegerOf(static_cast<const TVMFFIAny*>(cell.data)[i], plans_);
    kernel_.stages = std::max(kernel_.stages, stage + 1);
  }
  return true;
}

// Reads the annotations of a block on its buffers: stride alignment, and regions that tensor intrinsics access.
void Walker::ReadKernelBlock(const TVMFFIObject* block, const TypePlan& plan, int depth) {
  ReadStrideAlignments(block, plan);
  const TVMFFIObject* matches = ReadObject(block, plan, Name::kMatchBuffers);
  if (matches == nullptr) return;
  const TVMFFISeqCell& cell = Sequence(matches);
  for (int64_t i = 0; i < cell.size; ++i) {
    const TVMFFIObject* match = static_cast<const TVMFFIAny*>(cell.data)[i].v_obj;
    const TypePlan& match_plan = plans_(match->type_index);
    buffers_[static_cast<size_t>(BufferOf(ReadObject(match, match_plan, Name::kBuffer)))].is_view = true;
    const TVMFFIObject* region = ReadObject(match, match_plan, Name::kSource);
    const TypePlan& region_plan = plans_(region->type_index);
    const TVMFFIObject* var = ReadObject(region, region_plan, Name::kBuffer);
    const TVMFFISeqCell& ranges = Sequence(ReadObject(region, region_plan, Name::kRegion));
    const auto dims = static_cast<int64_t>(buffers_[static_cast<size_t>(BufferOf(var))].shape.size());
    const int64_t rank = std::min(ranges.size, dims);
    std::vector<double> bases(static_cast<size_t>(rank));
    splits_.clear();
    for (int64_t dim = 0; dim < rank; ++dim) {
      const TVMFFIObject* range = static_cast<const TVMFFIAny*>(ranges.data)[dim].v_obj;
      const TypePlan& range_plan = plans_(range->type_index);
      const auto number = static_cast<int32_t>(dim);
      AddSplits(ReadObject(range, range_plan, Name::kMin), number, depth, bases[static_cast<size_t>(dim)]);
      const double extent = ConstantOf(ReadObject(range, range_plan, Name::kExtent), plans_);
      if (extent > 1) splits_.push_back({-1, number, 1, extent, 1});
    }
    KeepAccess(var, -1, HasRegionOf(ReadObject(block, plan, Name::kReads), var),
               HasRegionOf(ReadObject(block, plan, Name::kWrites), var), bases.data(), rank);
  }
}

bool Walker::HasRegionOf(const TVMFFIObject* regions, const TVMFFIObject* var) {
  if (regions == nullptr) return false;
  const TVMFFISeqCell& cell = Sequence(regions);
  const auto* items = static_cast<const TVMFFIAny*>(cell.data);
  return std::any_of(items, items + cell.size, [&](const TVMFFIAny& item) {
    return ReadObject(item.v_obj, plans_(item.v_obj->type_index), Name::kBuffer) == var;
  });
}

// TVM's storage_align: (index in the block's writes, dimension, factor, offset).
void Walker::ReadStrideAlignments(const TVMFFIObject* block, const TypePlan& plan) {
  const TVMFFIObject* map = ReadObject(block, plan, Name::kAnnotations);
  const TVMFFIObject* writes = ReadObject(block, plan, Name::kWrites);
  if (map == nullptr || writes == nullptr || plans_(map->type_index).kind != Kind::kMap) return;
  const TVMFFISeqCell& regions = Sequence(writes);
  const auto* annotations = reinterpret_cast<const tvm::ffi::MapBaseObj*>(map);
  if (annotations->size() == 0) return;
  for (const auto& [key, value] : *annotations) {
    const auto name = key.as<tvm::ffi::String>();
    const TVMFFIObject* list = ObjectOf(*reinterpret_cast<const TVMFFIAny*>(&value));
    if (!name || *name != "buffer_dim_align" || list == nullptr) continue;
    if (plans_(list->type_index).kind != Kind::kSequence) continue;
    const TVMFFISeqCell& entries = Sequence(list);
    for (int64_t i = 0; i < entries.size; ++i) {
      const TVMFFIObject* entry = ObjectOf(static_cast<const TVMFFIAny*>(entries.data)[i]);
      if (entry == nullptr || plans_(entry->type_index).kind != Kind::kSequence || Sequence(entry).size != 4) continue;
      const auto* numbers = static_cast<const TVMFFIAny*>(Sequence(entry).data);
      const auto number = [&](int at) { return IntegerOf(numbers[at], plans_); };
      if (number(0) < 0 || number(0) >= static_cast<double>(regions.size)) continue;
      const TVMFFIObject* region = static_cast<const TVMFFIAny*>(regions.data)[Floor(number(0))].v_obj;
      const int32_t buffer = BufferOf(ReadObject(region, plans_(region->type_index), Name::kBuffer));
      buffers_[static_cast<size_t>(buffer)].alignments.push_back({number(1), number(2), number(3)});
    }
  }
}

// Keeps an access with the indices in splits_ until the end of the CUDA kernel.
void Walker::KeepAccess(const TVMFFIObject* var, int32_t row, bool loads, bool stores, const double* bases,
                        int64_t rank) {
  const int32_t id = BufferOf(var);
  Buffer& buffer = buffers_[static_cast<size_t>(id)];
  if (buffer.memory == Memory::kUnknown) {
    const TVMFFIObject* type = ReadObject(var, plans_(var->type_index), Name::kTy);
    const std::string scope =
        type == nullptr ? std::string() : ReadString(type, plans_(type->type_index), Name::kStorageScope);
    const bool is_global = scope.empty() || StartsWith(scope, "global") || StartsWith(scope, "texture");
    buffer.memory = is_global ? Memory::kGlobal : StartsWith(scope, "shared") ? Memory::kShared : Memory::kRegisters;
    if (buffer.memory == Memory::kRegisters && scope != "local") buffer.holders = kWarp;
  }
  kernel_.accesses.push_back({id, row, loads, stores, kernel_.loops.size(), loops_.size(), kernel_.splits.size(),
                              splits_.size(), kernel_.bases.size(), static_cast<size_t>(rank)});
  kernel_.loops.insert(kernel_.loops.end(), loops_.begin(), loops_.end());
  kernel_.splits.insert(kernel_.splits.end(), splits_.begin(), splits_.end());
  kernel_.bases.insert(kernel_.bases.end(), bases, bases + rank);
}

void Walker::CloseKernel() {
  std::vector<Tile> tiles;
  const auto tile_of = [&](const KernelAccess& access) -> Tile* {
    const int32_t tile = buffers_[static_cast<size_t>(access.buffer)].tile;
    return tile < 0 ? nullptr : &tiles[static_cast<size_t>(tile)];
  };
  for (const KernelAccess& access : kernel_.accesses) {
    Buffer& buffer = buffers_[static_cast<size_t>(access.buffer)];
    if (buffer.memory == Memory::kGlobal || buffer.is_view) continue;
    if (buffer.tile < 0) {
      buffer.tile = static_cast<int32_t>(tiles.size());
      tiles.push_back({access.buffer, &access, access.loop_count, {}, {}, {}, {}, 0});
    }
    Tile& tile = *tile_of(access);
    tile.common = std::min(tile.common, access.loop_count);
    const Loop* loops = kernel_.loops.data() + access.loops;
    const Loop* first = kernel_.loops.data() + tile.first->loops;
    size_t common = 0;
    while (common < tile.common && loops[common].node == first[common].node) ++common;
    tile.common = common;
  }
  for (const KernelAccess& access : kernel_.accesses) {
    if (Tile* tile = tile_of(access)) {
      AddAccess(kernel_, access, buffers_[static_cast<size_t>(access.buffer)].memory, *tile);
    }
  }
  double shared = 0;
  double registers = 0;
  for (Tile& tile : tiles) {
    const Buffer& buffer = buffers_[static_cast<size_t>(tile.buffer)];
    LayOut(kernel_, buffer, tile);
    (buffer.memory == Memory::kShared ? shared : registers) += tile.bytes;
  }

  // Writes the features that the nodes of a CUDA kernel share.
  const auto write = [&](int32_t row) {
    float* out = out_.gpus.data() + static_cast<size_t>(row) * kGpuSize - kGpuBegin;
    out[v_grid_blocks] = Log(Product(kernel_.extents[static_cast<size_t>(Thread::kBlock)]));
    out[v_block_threads] = Log(Product(kernel_.extents[static_cast<size_t>(Thread::kThread)]));
    out[v_virtual_threads] = Log(Product(kernel_.extents[static_cast<size_t>(Thread::kVirtual)]));
    out[v_pipeline_stages] = Log(kernel_.stages);
    out[v_async_stages] = Log(kernel_.async_stages);
    out[v_shared_bytes] = Log(shared);
    out[v_register_bytes] = Log(registers);
    return out;
  };
  write(kernel_.row);
  for (const KernelAccess& access : kernel_.accesses) {
    if (access.row < 0) continue;
    float* out = write(access.row);
    const Buffer& buffer = buffers_[static_cast<size_t>(access.buffer)];
    out[v_in_shared] = buffer.memory == Memory::kShared;
    out[v_in_registers] = buffer.memory == Memory::kRegisters;
    if (buffer.memory == Memory::kRegisters) continue;
    const WarpAccess warp(kernel_, access, buffer, tile_of(access));
    out[v_stride_thread] = SignedLog(warp.thread_stride());
    if (buffer.memory == Memory::kGlobal) out[v_warp_sectors] = Log(static_cast<double>(warp.Sectors()));
    if (buffer.memory == Memory::kShared) out[v_bank_conflicts] = Log(static_cast<double>(warp.BankConflicts()));
  }
  for (const Tile& tile : tiles) buffers_[static_cast<size_t>(tile.buffer)].tile = -1;
  kernel_.row = -1;
}

}  // namespace tvm_gnn_cost
