// Features of buffer accesses (footprint, strides, reuse) and of the statements around them (work).
//
// They follow TVM's features per buffer store (src/s_tir/meta_schedule/feature_extractor/per_store_feature.cc, after
// Ansor, arXiv:2006.06762), but are computed from index expressions without lowering the program. Loops of one
// iteration are ignored, because lowering would remove them.
#include <algorithm>
#include <cmath>
#include <utility>

#include "reflect_walker.h"

namespace tvm_gnn_cost {
namespace {

constexpr double kCacheLine = 64;  // bytes
constexpr int64_t kMaxRank = 16;   // further dimensions are ignored

// The values of an index: the number of distinct ones, and the distance between the minimum and the maximum.
struct IndexRange {
  double count = 1;
  double span = 1;

  void Add(const Split& split, int64_t limit) {
    const double step = std::fabs(split.scale);
    const bool overlaps = step < span;
    span += step * (split.extent - 1);
    count *= split.extent;
    if (overlaps) count = std::min(count, std::ceil(span));
    if (limit > 0) {
      count = std::min(count, static_cast<double>(limit));
      span = std::min(span, static_cast<double>(limit));
    }
  }
};

double CacheLines(const IndexRange* ranges, const Buffer& buffer, int64_t rank) {
  double lines = 1;
  double run = 1;  // contiguous elements in memory
  int64_t dim = rank - 1;
  while (dim >= 0 && ranges[dim].count == static_cast<double>(buffer.shape[static_cast<size_t>(dim)])) {
    run *= ranges[dim--].count;
  }
  if (dim >= 0) {
    const double step = ranges[dim].span / ranges[dim].count * run * buffer.element_bytes;
    if (step <= kCacheLine || ranges[dim].span <= ranges[dim].count) {
      run *= ranges[dim--].span;
    }
  }
  for (; dim >= 0; --dim) lines *= ranges[dim].count;
  return lines * std::max(1.0, std::ceil(run * buffer.element_bytes / kCacheLine));
}

}  // namespace

int32_t Walker::BufferOf(const TVMFFIObject* var) {
  const auto [it, is_new] = buffer_ids_.emplace(var, static_cast<int32_t>(buffers_.size()));
  if (!is_new) return it->second;
  Buffer buffer;
  std::vector<int64_t> extents;
  const TVMFFIObject* type = ReadObject(var, plans_(var->type_index), Name::kTy);
  if (type != nullptr) {
    const TypePlan& plan = plans_(type->type_index);
    const DLDataType dtype = DTypeOf(type, plans_);
    buffer.element_bytes = std::max(1.0, dtype.bits / 8.0) * Lanes(dtype);
    if (const TVMFFIObject* shape = ReadObject(type, plan, Name::kShape)) {
      const TVMFFISeqCell& cell = Sequence(shape);
      const auto* items = static_cast<const TVMFFIAny*>(cell.data);
      for (int64_t i = 0; i < cell.size; ++i) {
        extents.push_back(ToInteger(ConstantOf(ObjectOf(items[i]), plans_)));
      }
    }
  }
  SetShape(buffer, std::move(extents));
  buffers_.push_back(std::move(buffer));
  return it->second;
}

void Walker::SetShape(Buffer& buffer, std::vector<int64_t> shape) {
  buffer.shape = std::move(shape);
  buffer.strides.resize(buffer.shape.size());
  buffer.elements = 1;
  for (size_t dim = buffer.shape.size(); dim-- > 0;) {
    buffer.strides[dim] = buffer.elements;
    buffer.elements *= static_cast<double>(std::max<int64_t>(1, buffer.shape[dim]));
  }
}

uint64_t Walker::AddSplits(const TVMFFIObject* index, int32_t dim, int depth, double& base) {
  const IndexAnalyzer::Scope scope = analyzer_.Mark();
  Form form = analyzer_.Analyze(index, depth + 1);
  analyzer_.Simplify(form);
  base = form.base;
  for (int32_t i = 0; i < form.count; ++i) {
    const Term& term = analyzer_.terms(form)[i];
    splits_.push_back({term.loop, dim, term.lower, static_cast<double>(term.extent), term.scale});
  }
  analyzer_.Release(scope);
  return form.deps;
}

void Walker::AnalyzeAccess(int32_t node, const TVMFFIObject* var, const TVMFFIObject* indices, bool is_store,
                           int depth) {
  const int32_t buffer_id = BufferOf(var);
  Buffer& buffer = buffers_[static_cast<size_t>(buffer_id)];
  (is_store ? buffer.stores : buffer.loads).push_back(node);
  const TVMFFISeqCell& cell = Sequence(indices);
  const int64_t rank = std::min({cell.size, static_cast<int64_t>(buffer.shape.size()), kMaxRank});

  const double operations = analyzer_.operations();
  std::vector<Split>& splits = splits_;
  splits.clear();
  double bases[kMaxRank] = {};
  uint64_t deps = 0;
  for (int64_t dim = 0; dim < rank; ++dim) {
    const TVMFFIObject* index = ObjectOf(static_cast<const TVMFFIAny*>(cell.data)[dim]);
    deps |= AddSplits(index, static_cast<int32_t>(dim), depth, bases[dim]);
  }
  work_.int_ops += analyzer_.operations() - operations;
  // Innermost loop first.
  std::stable_sort(splits.begin(), splits.end(), [](const Split& a, const Split& b) { return a.loop > b.loop; });

  const size_t nest = loops_.size();
  const size_t first_footprint = footprints_.size();
  if (static_cast<int64_t>(first_footprint + nest) >= kMaxFootprints) throw GraphError(TooLarge());
  footprints_.resize(first_footprint + nest + 1);
  double* footprint = footprints_.data() + first_footprint;
  const size_t row = out_.accesses.size();
  out_.accesses.resize(row + kAccessSize, 0.0f);
  float* value = out_.accesses.data() + row - kAccessBegin;
  Access access{node, buffer_id, static_cast<int32_t>(row / kAccessSize), static_cast<int32_t>(first_footprint), -1};

  IndexRange ranges[kMaxRank];
  const double bytes = buffer.element_bytes;
  footprint[nest] = bytes;
  int moving = 0;
  int dependent = 0;
  double inside = 1;  // iterations of the loops inside the current one
  bool has_vectorized = false;
  auto split = splits.begin();
  for (size_t level = nest; level-- > 0;) {
    const Loop& loop = loops_[level];
    const auto first = split;
    int64_t finest = INT64_MAX;
    for (; split != splits.end() && static_cast<size_t>(split->loop) == level; ++split) {
      ranges[split->dim].Add(*split, buffer.shape[static_cast<size_t>(split->dim)]);
      finest = std::min(finest, split->lower);
    }
    footprint[level] = footprint[level + 1];
    if (loop.extent <= 1) continue;
    double stride = 0;  // in elements
    if (split != first) {
      double unique = 1;
      for (int64_t dim = 0; dim < rank; ++dim) unique *= ranges[dim].count;
      footprint[level] = unique * bytes;
      for (auto it = first; it != split; ++it) {
        if (it->lower != finest) continue;
        stride += it->scale * buffer.strides[static_cast<size_t>(it->dim)] / static_cast<double>(finest);
      }
      ++dependent;
      if (loop.kind == kParallel) value[v_parallel_in_address] = 1;
    } else if (access.reuse_loop < 0) {
      access.reuse_loop = loop.record;
      value[v_reuse_count] = Log(static_cast<double>(loop.extent));
      value[v_reuse_iterations] = Log(inside);
    }
    if (moving < 3) value[v_stride_innermost + moving] = SignedLog(stride * bytes);
    if (moving < 4) value[v_footprint_1 + moving] = Log(footprint[level]);
    if (moving == 0) {
      value[v_innermost_stride_zero] = stride == 0;
      value[v_innermost_stride_one] = stride == 1;
    }
    if (loop.kind == kVectorized && !has_vectorized) {
      has_vectorized = true;
      value[v_stride_vectorized] = SignedLog(stride * bytes);
      value[v_vectorized_stride_zero] = stride == 0;
      value[v_vectorized_stride_one] = stride == 1;
    }
    inside *= static_cast<double>(loop.extent);
    ++moving;
  }
  for (int missing = moving; missing < 4; ++missing) value[v_footprint_1 + missing] = Log(footprint[0]);
  value[v_buffer_bytes] = Log(buffer.elements * bytes);
  value[v_buffer_is_param] = buffer.is_param;
  value[v_is_store] = is_store;
  value[v_executions] = Log(contexts_.back().iterations);
  value[v_unique_bytes] = Log(footprint[0]);
  value[v_unique_lines] = Log(CacheLines(ranges, buffer, rank));
  value[v_dependent_loops] = Log(dependent);
  value[v_independent_loops] = Log(moving - dependent);

  At(node).access = access.row;
  At(node).constants[0] = Log(buffer.elements);
  At(node).constants[1] = static_cast<float>(buffer.shape.size());
  for (size_t level = 0; level < std::min<size_t>(nest, 64); ++level) {
    if (deps >> level & 1) out_.edges.push_back({loops_[level].node, node, Relation::kLoop});
  }
  accesses_.push_back(access);
  if (kernel_.row >= 0) {
    At(node).gpu = NewKernelRow();
    KeepAccess(var, At(node).gpu, !is_store, is_store, bases, rank);
  }
}

// Bytes that the accesses from `first_access` on touch while the loops from `level` inwards run. Only the largest
// access of each buffer counts, because accesses of a buffer in a loop nest mostly touch the same elements.
double Walker::TouchedBytes(size_t first_access, size_t level) {
  touches_ += static_cast<int64_t>(accesses_.size() - first_access);
  if (touches_ > kMaxTouches) throw GraphError(TooLarge());
  touched_buffers_.clear();
  for (size_t i = first_access; i < accesses_.size(); ++i) {
    const Access& access = accesses_[i];
    double& touched = buffers_[static_cast<size_t>(access.buffer)].touched;
    if (touched == 0) touched_buffers_.push_back(access.buffer);
    touched = std::max(touched, footprints_[static_cast<size_t>(access.footprints) + level]);
  }
  double total = 0;
  for (const int32_t buffer : touched_buffers_) {
    total += std::exchange(buffers_[static_cast<size_t>(buffer)].touched, 0);
  }
  return total;
}

void Walker::WriteWork(int32_t node, const Work& once, double executions, double footprint, double body,
                       bool is_innermost, int64_t body_children) {
  At(node).work = static_cast<int32_t>(out_.works.size()) / kWorkSize;
  const double operations = once.float_ops + once.math_calls;
  for (const double magnitude : {once.float_ops, once.float_ops * executions, once.math_calls,
                                 once.math_calls * executions, once.int_ops, once.int_ops * executions, once.loads,
                                 once.stores, footprint, body, footprint > 0 ? operations / footprint : 0.0}) {
    out_.works.push_back(Log(magnitude));
  }
  out_.works.push_back(is_innermost ? 1.0f : 0.0f);
  out_.works.push_back(Log(static_cast<double>(body_children)));
}

void Walker::Finish() {
  for (const Access& access : accesses_) {
    if (access.reuse_loop < 0) continue;
    out_.accesses[static_cast<size_t>(access.row) * kAccessSize + v_reuse_bytes - kAccessBegin] =
        Log(loop_bytes_[static_cast<size_t>(access.reuse_loop)]);
  }
  // In the order of the buffers' first accesses, which does not depend on nodes that are hidden in one detail.
  for (const Access& access : accesses_) {
    Buffer& buffer = buffers_[static_cast<size_t>(access.buffer)];
    if (std::exchange(buffer.has_edges, true)) continue;
    int pairs = 0;
    for (const int32_t store : buffer.stores) {
      for (const int32_t load : buffer.loads) {
        if (pairs++ == kMaxBufferEdges) break;
        out_.edges.push_back({store, load, Relation::kBuffer});
      }
      if (pairs > kMaxBufferEdges) break;
    }
  }
}

}  // namespace tvm_gnn_cost
