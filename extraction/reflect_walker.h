// Walks the syntax tree of a module and leaves its nodes, edges and value rows behind.
#ifndef TVM_GNN_COST_EXTRACTION_REFLECT_WALKER_H_
#define TVM_GNN_COST_EXTRACTION_REFLECT_WALKER_H_

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

struct Loop {
  int32_t node;
  int64_t extent;
  int kind;
  int32_t record;  // of loop_bytes: bytes touched in one iteration, known once the body has been walked
};

struct Buffer {
  bool is_param = false;
  bool is_declared = false;  // its shape has been written
  bool has_edges = false;    // its BUFFER edges have
  double element_bytes = 0;
  double elements = 1;
  std::vector<int64_t> shape;   // 0 where it is not a constant
  std::vector<double> strides;  // of a compact row-major layout, in elements
  std::vector<int32_t> stores, loads;
  double touched = 0;  // scratch of TouchedBytes
};

struct Access {
  int32_t node, buffer, row;
  int32_t footprints;   // footprint_[footprints + level]: bytes it touches while the loops from `level` inwards run
  int32_t reuse_loop;   // Loop::record of the innermost loop that does not move it, or -1
};

// A Term of one of an access's indices.
struct Split {
  int32_t loop;
  int32_t dim;
  int64_t lower;
  double extent;
  double scale;
};

struct Work {
  double float_ops = 0, math_calls = 0, int_ops = 0, loads = 0, stores = 0;
  void AddScaled(const Work& other, double times);
};

// What a loop nest does to everything inside it; the products count the extents of all loops above.
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

  // The PrimFuncs of an IRModule, by name.
  Functions FunctionsOf(const TVMFFIObject* module);
  // Appends one graph, with all nodes or those of detail="statements"; throws GraphError, and then the caller cuts the
  // output back.
  void Run(Functions functions, bool is_tree);

 private:
  // How a node was reached. `nest` counts containers too: it is what bounds the C stack.
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
  void AnalyzeAccess(int32_t node, const TVMFFIObject* var, const TVMFFIObject* indices, bool is_store, int depth);
  double TouchedBytes(size_t first_access, size_t level);
  void WriteWork(int32_t node, const Work& once, double executions, double footprint, double body, bool is_innermost,
                 int64_t body_children);
  void Finish();

  void Warm(const TVMFFIObject* root);

  Graphs& out_;
  PlanCache plans_;
  IndexAnalyzer analyzer_;
  int32_t prim_type_index_ = -1;
  int64_t prim_dtype_offset_ = 0;

  // of the graph at hand
  bool is_tree_ = true;
  size_t first_node_ = 0;
  int64_t visits_ = 0;
  std::vector<Loop> loops_;
  std::vector<double> loop_bytes_;
  std::vector<Context> contexts_;
  std::vector<Buffer> buffers_;
  std::unordered_map<const TVMFFIObject*, int32_t> buffer_ids_;
  std::vector<Access> accesses_;
  std::vector<double> footprints_;
  std::vector<int32_t> touched_buffers_;  // scratch
  std::vector<Split> splits_;             // scratch
  std::vector<const TVMFFIObject*> queue_;  // scratch of Warm
  Work work_;
  int64_t moving_loops_ = 0;     // loops of more than one iteration met so far
  double init_executions_ = 1;   // how many executions of a block's body one of its init stands for
};

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_REFLECT_WALKER_H_
