// The functions that Python calls (tvm_gnn_cost/graphs/extension.py): programs in, flat arrays out.
#include <sys/mman.h>
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "auto_scheduler_mirror.h"
#include "auto_scheduler_tvm.h"
#include "program_graph.h"
#include "reflect_walker.h"
#include "type_plan.h"
#include "values.h"

namespace tvm_gnn_cost {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Map;
using tvm::ffi::String;
using tvm::ffi::Tensor;

// Keeps large freed blocks for the next population. The operating system zeroes new pages at their first use, which
// takes as long as writing the arrays, also with huge pages and several threads.
class BlockPool {
 public:
  static constexpr size_t kHugePage = size_t{1} << 21;

  static BlockPool& Global() {
    static BlockPool* pool = new BlockPool();  // never destroyed: NumPy can free arrays after static destructors
    return *pool;
  }
  // Rounds a size up to one of a few, so that kept blocks fit the next arrays.
  static size_t BlockBytes(size_t bytes) {
    size_t step = kHugePage;
    while (8 * step < bytes) step *= 2;
    return (bytes + step - 1) / step * step;
  }
  void* Take(size_t block) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto it = idle_.begin(); it != idle_.end(); ++it) {
        if (it->second != block) continue;
        void* start = it->first;
        idle_.erase(it);
        idle_bytes_ -= block;
        return start;
      }
    }
    void* region = mmap(nullptr, block + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED) throw std::bad_alloc();
    // Huge pages need an aligned start; the rest is returned.
    char* start = static_cast<char*>(region);
    const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
    if (before > 0) munmap(start, before);
    if (before < kHugePage) munmap(start + before + block, kHugePage - before);
    madvise(start + before, block, MADV_HUGEPAGE);
    return start + before;
  }
  void Return(void* start, size_t block) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (idle_bytes_ + block <= kMaxIdleBytes) {
        idle_.emplace_back(start, block);
        idle_bytes_ += block;
        return;
      }
    }
    munmap(start, block);
  }

 private:
  static constexpr size_t kMaxIdleBytes = size_t{1} << 27;
  std::mutex mutex_;
  std::vector<std::pair<void*, size_t>> idle_;
  size_t idle_bytes_ = 0;
};

// Allocates uninitialized tensors.
struct Allocator {
  static bool IsLarge(size_t bytes) { return bytes >= BlockPool::kHugePage / 2; }

  void AllocData(DLTensor* tensor) {
    const size_t bytes = tvm::ffi::GetDataSize(*tensor);
    if (IsLarge(bytes)) {
      tensor->data = BlockPool::Global().Take(BlockPool::BlockBytes(bytes));
      return;
    }
    constexpr size_t kAlignment = 64;
    tensor->data = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
    if (tensor->data == nullptr) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) {
    const size_t bytes = tvm::ffi::GetDataSize(*tensor);
    if (IsLarge(bytes)) {
      BlockPool::Global().Return(tensor->data, BlockPool::BlockBytes(bytes));
    } else {
      std::free(tensor->data);
    }
  }
};

template <typename T>
Tensor NewTensor(std::vector<int64_t> shape, uint8_t code) {
  return Tensor::FromNDAlloc(Allocator(), tvm::ffi::ShapeView(shape.data(), shape.size()),
                             DLDataType{code, sizeof(T) * 8, 1}, DLDevice{kDLCPU, 0});
}

template <typename T>
T* Data(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// The position of a graph in the output of the worker that extracted it, or the reason why there is none.
struct Slot {
  size_t worker = 0;
  size_t node_begin = 0, node_count = 0;
  size_t edge_begin = 0, edge_count = 0;  // without CHILD edges
  size_t child_count = 0;                 // CHILD edges: one for each node but the functions
  std::string error;
  bool is_type_error = false;
};

struct Worker {
  Graphs graphs;
  Walker walker{graphs};
  ModuleMirror mirror;
  std::vector<char> occurs;  // by index in the Registry: whether a node has this name
};

// Keeps workers between calls, with their memory and type plans. Workers that have grown large are not kept.
class WorkerPool {
 public:
  static WorkerPool& Global() {
    static WorkerPool* pool = new WorkerPool();  // never destroyed, like the registry
    return *pool;
  }
  std::unique_ptr<Worker> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return std::make_unique<Worker>();
    auto worker = std::move(idle_.back());
    idle_.pop_back();
    return worker;
  }
  void Return(std::unique_ptr<Worker> worker) {
    if (worker->graphs.nodes.capacity() > kMaxKeptNodes) return;
    worker->graphs.Clear();
    worker->occurs.clear();
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < std::max(1u, std::thread::hardware_concurrency())) idle_.push_back(std::move(worker));
  }

 private:
  static constexpr size_t kMaxKeptNodes = size_t{1} << 20;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> idle_;
};

std::string DescribeType(const Any& value) {
  if (value == nullptr) return "None";
  if (value.type_index() == kTVMFFIOpaquePyObject) return "a Python object that is none of TVM's";
  return "a " + value.GetTypeKey();
}

template <typename ReadFunctions>
void ExtractOne(const ReadFunctions& functions_of, size_t program, bool is_tree, Worker& worker, Slot& slot) {
  Graphs& graphs = worker.graphs;
  slot.node_begin = graphs.nodes.size();
  slot.edge_begin = graphs.edges.size();
  try {
    worker.walker.Run(functions_of(program, worker), is_tree);
  } catch (const GraphError& error) {
    graphs.nodes.resize(slot.node_begin);
    graphs.edges.resize(slot.edge_begin);
    slot.error = error.what();
    slot.is_type_error = error.is_type_error;
  }
  slot.node_count = graphs.nodes.size() - slot.node_begin;
  slot.edge_count = graphs.edges.size() - slot.edge_begin;
  for (size_t i = slot.node_begin; i < graphs.nodes.size(); ++i) {
    const auto type = static_cast<size_t>(graphs.nodes[i].type);
    if (type >= worker.occurs.size()) worker.occurs.resize(type + 64, 0);
    worker.occurs[type] = 1;
    slot.child_count += graphs.nodes[i].parent >= 0;
  }
}

// Runs job(worker index) on `count` threads including the current one, and throws the first exception.
template <typename Job>
void RunOnThreads(size_t count, const Job& job) {
  std::vector<std::exception_ptr> errors(count);
  const auto guarded = [&](size_t worker) {
    try {
      job(worker);
    } catch (...) {
      errors[worker] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t worker = 1; worker < count; ++worker) threads.emplace_back(guarded, worker);
  guarded(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

struct Output {
  const std::vector<int32_t>* type_of_name;
  int32_t* node_type;
  float* values;
  int32_t* source;
  int32_t* target;
  int8_t* relation;
};

template <int begin, int size>
void CopyBlock(const std::vector<float>& rows, int32_t index, float* row) {
  if (index < 0) {
    for (int i = begin; i < begin + size; ++i) row[i] = 0;
    return;
  }
  std::memcpy(row + begin, rows.data() + static_cast<size_t>(index) * size, size * sizeof(float));
}

void WriteRow(const Node& node, const Graphs& graphs, float* row) {
  std::memcpy(row, node.constants, sizeof(node.constants));
  if (node.dtype.bits != 0) {
    const bool is_float = IsFloat(node.dtype);
    row[v_dtype_bytes] = Log(std::max(1, node.dtype.bits / 8));
    row[v_dtype_lanes] = Log(Lanes(node.dtype));
    row[v_is_float] = is_float;
    row[v_is_int] = !is_float && node.dtype.code != kDLOpaqueHandle;
  } else {
    row[v_dtype_bytes] = row[v_dtype_lanes] = row[v_is_float] = row[v_is_int] = 0;
  }
  CopyBlock<kOwnBegin, kOwnSize>(graphs.owns, node.own, row);
  CopyBlock<kContextBegin, kContextSize>(graphs.contexts, node.context, row);
  row[kDepthColumn] = Log(node.depth);
  CopyBlock<kAccessBegin, kAccessSize>(graphs.accesses, node.access, row);
  CopyBlock<kWorkBegin, kWorkSize>(graphs.works, node.work, row);
  std::fill(row + kTargetBegin, row + kGpuBegin, 0.0f);
  CopyBlock<kGpuBegin, kGpuSize>(graphs.gpus, node.gpu, row);
}

void WriteGraph(const Slot& slot, const Graphs& graphs, int64_t node, int64_t edge, const Output& out) {
  for (size_t i = 0; i < slot.node_count; ++i, ++node) {
    const Node& item = graphs.nodes[slot.node_begin + i];
    out.node_type[node] = (*out.type_of_name)[static_cast<size_t>(item.type)];
    WriteRow(item, graphs, out.values + node * kColumns);
    if (item.parent < 0) continue;
    out.source[edge] = item.parent;
    out.target[edge] = static_cast<int32_t>(i);
    out.relation[edge++] = static_cast<int8_t>(Relation::kChild);
  }
  for (size_t i = 0; i < slot.edge_count; ++i, ++edge) {
    const Edge& item = graphs.edges[slot.edge_begin + i];
    out.source[edge] = item.source;
    out.target[edge] = item.target;
    out.relation[edge] = static_cast<int8_t>(item.relation);
  }
}

// Extracts the graphs of `count` programs; functions_of(program, worker) returns the PrimFuncs of a program or throws
// GraphError. Returns [type names, node_type, x, edge_index, edge_type, node_offsets, edge_offsets, errors].
template <typename ReadFunctions>
Array<Any> ExtractAll(const char* what, size_t count, const ReadFunctions& functions_of, bool is_tree, int64_t threads,
                      bool skips_errors) {
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  const size_t worker_count = std::max<size_t>(1, std::min(wanted, count));
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < worker_count; ++i) workers.push_back(WorkerPool::Global().Take());
  std::vector<Slot> slots(count);
  std::atomic<size_t> next{0};
  RunOnThreads(worker_count, [&](size_t worker) {
    for (size_t i = next++; i < count; i = next++) {
      slots[i].worker = worker;
      ExtractOne(functions_of, i, is_tree, *workers[worker], slots[i]);
    }
  });

  Map<int64_t, String> errors;
  Tensor node_offsets = NewTensor<int64_t>({static_cast<int64_t>(count) + 1}, kDLInt);
  Tensor edge_offsets = NewTensor<int64_t>({static_cast<int64_t>(count) + 1}, kDLInt);
  auto* node_offset = Data<int64_t>(node_offsets);
  auto* edge_offset = Data<int64_t>(edge_offsets);
  node_offset[0] = edge_offset[0] = 0;
  for (size_t i = 0; i < count; ++i) {
    const Slot& slot = slots[i];
    if (!slot.error.empty()) {
      if (!skips_errors) {
        const std::string message = what + ("[" + std::to_string(i)) + "]: " + slot.error;
        if (slot.is_type_error) TVM_FFI_THROW(TypeError) << message;
        TVM_FFI_THROW(ValueError) << message;
      }
      errors.Set(static_cast<int64_t>(i), String(slot.error));
    }
    node_offset[i + 1] = node_offset[i] + static_cast<int64_t>(slot.node_count);
    edge_offset[i + 1] = edge_offset[i] + static_cast<int64_t>(slot.edge_count + slot.child_count);
  }

  const std::vector<std::string> names = Registry::Global().Names();
  std::vector<size_t> order;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto has = [i](const auto& worker) { return i < worker->occurs.size() && worker->occurs[i]; };
    if (std::any_of(workers.begin(), workers.end(), has)) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return names[a] < names[b]; });
  Array<Any> type_names;
  std::vector<int32_t> type_of_name(names.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    type_names.push_back(String(names[order[i]]));
    type_of_name[order[i]] = static_cast<int32_t>(i);
  }

  const int64_t node_count = node_offset[count];
  const int64_t edge_count = edge_offset[count];
  Tensor node_type = NewTensor<int32_t>({node_count}, kDLInt);
  Tensor values = NewTensor<float>({node_count, kColumns}, kDLFloat);
  Tensor edges = NewTensor<int32_t>({2, edge_count}, kDLInt);
  Tensor relation = NewTensor<int8_t>({edge_count}, kDLInt);
  const Output out{&type_of_name,        Data<int32_t>(node_type),          Data<float>(values),
                   Data<int32_t>(edges), Data<int32_t>(edges) + edge_count, Data<int8_t>(relation)};
  RunOnThreads(worker_count, [&](size_t worker) {
    for (size_t i = 0; i < count; ++i) {
      if (slots[i].worker == worker) {
        WriteGraph(slots[i], workers[worker]->graphs, node_offset[i], edge_offset[i], out);
      }
    }
  });
  for (auto& worker : workers) WorkerPool::Global().Return(std::move(worker));
  return {type_names, node_type, values, edges, relation, node_offsets, edge_offsets, errors};
}

Array<Any> Extract(const Array<Any>& modules, bool is_tree, int64_t threads, bool skips_errors) {
  const auto functions_of = [&](size_t program, Worker& worker) {
    const Any& module = modules[static_cast<int64_t>(program)];
    if (module.type_index() < kTVMFFIDynObjectBegin || module.GetTypeKey() != "ir.IRModule") {
      throw GraphError(
          "expected a tvm.IRModule, got " + DescribeType(module) + "; wrap a PrimFunc as IRModule({\"main\": func})",
          true);
    }
    return worker.walker.FunctionsOf(reinterpret_cast<const TVMFFIAny*>(&module)->v_obj);
  };
  return ExtractAll("modules", modules.size(), functions_of, is_tree, threads, skips_errors);
}

// The same for TVM up to 0.19, which this process has loaded from the path `library`. `handles` are the addresses of
// states of the ComputeDAG at `compute_dag`, or of modules if that is 0. The caller keeps them alive.
Array<Any> ExtractAutoScheduler(const String& library, int64_t compute_dag, const Array<int64_t>& handles, bool is_tree,
                                int64_t threads, bool skips_errors) {
  const AutoSchedulerTVM* tvm = nullptr;
  try {
    tvm = &AutoSchedulerTVM::Of(library);
  } catch (const GraphError& error) {
    TVM_FFI_THROW(RuntimeError) << error.what();
  }
  const auto functions_of = [&](size_t program, Worker& worker) {
    auto* object = reinterpret_cast<void*>(handles[static_cast<int64_t>(program)]);
    if (compute_dag == 0) return worker.mirror.Copy(*tvm, object);
    const PackedValue module = tvm->Lower(reinterpret_cast<void*>(compute_dag), object);
    return worker.mirror.Copy(*tvm, module.object());
  };
  return ExtractAll(compute_dag == 0 ? "modules" : "states", handles.size(), functions_of, is_tree, threads,
                    skips_errors);
}

Array<String> ValueNames() {
#define TVM_GNN_COST_NAME(name) String(#name),
  return {TVM_GNN_COST_VALUES(TVM_GNN_COST_NAME)};
#undef TVM_GNN_COST_NAME
}

}  // namespace
}  // namespace tvm_gnn_cost

TVM_FFI_DLL_EXPORT_TYPED_FUNC(extract, tvm_gnn_cost::Extract)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(extract_auto_scheduler, tvm_gnn_cost::ExtractAutoScheduler)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(value_names, tvm_gnn_cost::ValueNames)
