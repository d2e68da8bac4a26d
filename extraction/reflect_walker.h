// Walks the syntax tree of a module and writes its nodes, edges and node features.
#ifndef TVM_GNN_COST_EXTRACTION_REFLECT_WALKER_H_
#define TVM_GNN_COST_EXTRACTION_REFLECT_WALKER_H_

#include <array>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "index_form.h"
#include "program_graph.h"
#include "type_plan.h"

namespace tvm_gnn_cost {

// tvm::tirx::ForKind
enum ForKind { kSerial = 0, kParallel = 1, kVectorized = 2, kUnrolled = 3, kThreadBinding = 4 };

// The kind and axis (x, y, z) of a loop that is bound to GPU threads.
enum class Thread : uint8_t { kNone, kBlock, kThread, kVirtual };
struct ThreadAxis {
  Thread thread = Thread::kNone;
  uint8_t axis = 0;
};

struct Loop {
  int32_t node;
  int64_t extent;
  int kind;
  int32_t record;  // index in loop_bytes_, which is filled after the body has been walked
  ThreadAxis bound;
};

enum class Memory : uint8_t { kUnknown, kGlobal, kShared, kRegisters };

// An annotation that rounds a stride up to a multiple of `factor` plus `offset`.
struct StrideAlignment {
  double dim, factor, offset;
};

struct Buffer {
  bool is_param = false;
  bool is_declared = false;  // its shape has been written
  bool has_edges = false;    // its BUFFER edges have been written
  double element_bytes = 0;
  double elements = 1;
  std::vector<int64_t> shape;   // 0 where it is not a constant
  std::vector<double> strides;  // in elements, of a compact row-major layout
  std::vector<int32_t> stores, loads;
  double touched = 0;  // TouchedBytes() works with it
  // Read in CUDA kernels only:
  Memory memory = Memory::kUnknown;
  bool is_view = false;  // a match_buffer's: nothing is allocated for it
  double holders = 1;    // number of threads that share it: a warp's matrix fragment is distributed over its threads
  std::vector<StrideAlignment> alignments;
  int32_t tile = -1;  // CloseKernel() works with it
};

struct Access {
  int32_t node, buffer, row;
  int32_t footprints;  // footprints_[footprints + level]: bytes touched while the loops from `level` inwards run
  int32_t reuse_loop;  // Loop::record of the innermost loop that does not change its address, or -1
};

// A Term of the index in a dimension of an access.
struct Split {
  int32_t loop;
  int32_t dim;
  int64_t lower;
  double extent;
  double scale;
};

// An access inside a CUDA kernel, or the region of a match_buffer: offsets of its items in the Kernel.
struct KernelAccess {
  int32_t buffer;
  int32_t row;  // of Graphs::gpus, or -1 for a region
  bool loads, stores;
  size_t loops, loop_count;
  size_t splits, split_count;
  size_t bases, rank;
};

// A CUDA kernel: the outermost loop that is bound to threads. The part of a buffer that a block touches is known after
// the whole kernel has been walked, so its accesses are kept until then.
struct Kernel {
  int32_t row = -1;  // of Graphs::gpus, for all nodes inside except accesses; -1 outside of CUDA kernels
  std::array<std::array<int64_t, 3>, 4> extents{};  // by Thread and axis
  double stages = 1, async_stages = 0;
  std::vector<KernelAccess> accesses;
  std::vector<Loop> loops;    // per access: the loops around it, outermost first
  std::vector<Split> splits;  // per access and loop; -1 stands for a region's extent
  std::vector<double> bases;  // per access: the constant part of each index
};

struct Work {
  double float_ops = 0, math_calls = 0, int_ops = 0, loads = 0, stores = 0;
  void AddScaled(const Work& other, double times);
};

// The context of a node: products of the extents of all loops around it, of the parallel ones, of the vectorized ones,
// and so on, and annotations.
struct Context {
  double iterations = 1, parallel = 1, vectorized = 1, unrolled = 1, threads = 1;
  int loop_depth = 0;
  double unroll_max_step = 0, unroll_explicit = 0;
  int32_t row = 0;
};

class Walker {
 public:
  explicit Walker(Graphs& out) : out_(out), analyzer_(plans_) {}
  using Functions = std::vector<std::pair<std::string, const TVMFFIObject*>>;

  // The PrimFuncs of an IRModule, with their names.
  Functions FunctionsOf(const TVMFFIObject* module);
  // Appends one graph, with all nodes if `is_tree` and otherwise with those of detail="statements". Throws GraphError;
  // the caller must then remove what was appended.
  void Run(Functions functions, bool is_tree);

 private:
  // How a node was reached. `nest` also counts containers and so bounds the C stack.
  struct Place {
    int32_t parent;
    int depth;
    int nest;
    bool hidden;
  };

  void Visit(const TVMFFIObject* object, const Place& place);
  void VisitChildren(const TVMFFIObject* object, const TypePlan& plan, int32_t id, const Place& place);
  bool IsLookUp(const TVMFFIObject* select, const TypePlan& plan);
  void VisitField(const TVMFFIObject* object, const Field& field, const Place& place);
  void VisitItems(const TVMFFIObject* object, const Place& place);
  void VisitMap(const TVMFFIObject* object, const Place& place);
  void VisitLoop(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitBlockRealize(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitBlock(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitStore(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitLoad(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitVar(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitAttr(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitBufferRealize(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitCall(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  void VisitPrimFunc(const TVMFFIObject* object, const TypePlan& plan, const Place& place);

  int32_t Emit(const TVMFFIObject* object, const TypePlan& plan, const Place& place);
  Node& At(int32_t id) { return out_.nodes[first_node_ + static_cast<size_t>(id)]; }
  void ReadPragmas(const TVMFFIObject* object, const TypePlan& plan, Context& context);
  void PushContext(Context context);

  // access_features.cc
  int32_t BufferOf(const TVMFFIObject* var);
  void SetShape(Buffer& buffer, std::vector<int64_t> shape);
  // Appends the terms of an index to splits_, sets `base` to its constant part, and returns the loops that it uses.
  uint64_t AddSplits(const TVMFFIObject* index, int32_t dim, int depth, double& base);
  void AnalyzeAccess(int32_t node, const TVMFFIObject* var, const TVMFFIObject* indices, bool is_store, int depth);
  double TouchedBytes(size_t first_access, size_t level);
  void WriteWork(int32_t node, const Work& once, double executions, double footprint, double body, bool is_innermost,
                 int64_t body_children);
  void Finish();

  // kernel_memory.cc
  ThreadAxis ThreadAxisOf(const TVMFFIObject* loop, const TypePlan& plan);
  void OpenKernel();
  void CloseKernel();
  bool ReadPipeline(const std::string& name, const TVMFFIObject* stages);
  void ReadKernelBlock(const TVMFFIObject* block, const TypePlan& plan, int depth);
  void ReadStrideAlignments(const TVMFFIObject* block, const TypePlan& plan);
  bool HasRegionOf(const TVMFFIObject* regions, const TVMFFIObject* var);
  int32_t NewKernelRow();
  void KeepAccess(const TVMFFIObject* var, int32_t row, bool loads, bool stores, const double* bases, int64_t rank);

  void Warm(const TVMFFIObject* root);

  Graphs& out_;
  PlanCache plans_;
  IndexAnalyzer analyzer_;
  int32_t prim_type_index_ = -1;
  int64_t prim_dtype_offset_ = 0;

  // Of the current graph:
  bool is_tree_ = true;
  size_t first_node_ = 0;
  int64_t visits_ = 0, touches_ = 0;
  std::vector<Loop> loops_;
  std::vector<double> loop_bytes_;
  std::vector<Context> contexts_;
  std::vector<Buffer> buffers_;
  std::unordered_map<const TVMFFIObject*, int32_t> buffer_ids_;
  std::vector<Access> accesses_;
  std::vector<double> footprints_;
  // Scratch memory of TouchedBytes(), AnalyzeAccess() and Warm().
  std::vector<int32_t> touched_buffers_;
  std::vector<Split> splits_;
  std::vector<const TVMFFIObject*> queue_;
  Work work_;
  int64_t moving_loops_ = 0;    // loops of more than one iteration so far
  double init_executions_ = 1;  // executions of a block's body per execution of its init
  Kernel kernel_;
};

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_REFLECT_WALKER_H_
