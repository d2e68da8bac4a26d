// The columns of ProgramGraphs.x. tvm_gnn_cost/graphs/values.py explains them and has the same order; a test compares
// the two.
#ifndef TVM_GNN_COST_EXTRACTION_VALUES_H_
#define TVM_GNN_COST_EXTRACTION_VALUES_H_

namespace tvm_gnn_cost {

// Each group is contiguous: a node's row is assembled by copying at most seven short blocks. The
// group TARGET is 0 here: tvm_gnn_cost/graphs/processor.py fills it from the program's target.
// clang-format off
#define TVM_GNN_COST_CONSTANT(X) X(const_0) X(const_1)
#define TVM_GNN_COST_DTYPE(X) X(dtype_bytes) X(dtype_lanes) X(is_float) X(is_int)
#define TVM_GNN_COST_LOOP_OWN(X)                                                                              \
  X(extent) X(kind_serial) X(kind_parallel) X(kind_vectorized) X(kind_unrolled) X(kind_thread)                \
  X(spatial_iters) X(reduce_iters) X(has_init) X(has_predicate)
#define TVM_GNN_COST_LOOP_CONTEXT(X)                                                                          \
  X(iterations) X(parallel_iterations) X(vectorized_iterations) X(unrolled_iterations) X(thread_iterations)   \
  X(loop_depth) X(unroll_max_step) X(unroll_explicit)
#define TVM_GNN_COST_LOOP_DEPTH(X) X(tree_depth)
#define TVM_GNN_COST_ACCESS(X)                                                                                \
  X(buffer_bytes) X(buffer_is_param) X(is_store) X(executions) X(unique_bytes) X(unique_lines)                \
  X(stride_innermost) X(stride_second) X(stride_third) X(stride_vectorized) X(innermost_stride_zero)          \
  X(innermost_stride_one) X(vectorized_stride_zero) X(vectorized_stride_one) X(reuse_count)                   \
  X(reuse_iterations) X(reuse_bytes) X(dependent_loops) X(independent_loops) X(footprint_1) X(footprint_2)    \
  X(footprint_3) X(footprint_4) X(is_update) X(parallel_in_address)
#define TVM_GNN_COST_WORK(X)                                                                                  \
  X(float_ops) X(float_ops_total) X(math_calls) X(math_calls_total) X(int_ops) X(int_ops_total) X(loads)      \
  X(stores) X(footprint_bytes) X(body_bytes) X(intensity) X(is_innermost) X(body_children)
#define TVM_GNN_COST_TARGET(X) X(cores) X(vector_bytes) X(flops_per_cycle) X(cache_1_bytes) X(cache_2_bytes)
#define TVM_GNN_COST_GPU(X)                                                                                   \
  X(grid_blocks) X(block_threads) X(virtual_threads) X(pipeline_stages) X(async_stages) X(shared_bytes)       \
  X(register_bytes) X(in_shared) X(in_registers) X(stride_thread) X(warp_sectors) X(bank_conflicts)
#define TVM_GNN_COST_VALUES(X)                                                                                \
  TVM_GNN_COST_CONSTANT(X) TVM_GNN_COST_DTYPE(X) TVM_GNN_COST_LOOP_OWN(X) TVM_GNN_COST_LOOP_CONTEXT(X)        \
  TVM_GNN_COST_LOOP_DEPTH(X) TVM_GNN_COST_ACCESS(X) TVM_GNN_COST_WORK(X) TVM_GNN_COST_TARGET(X)               \
  TVM_GNN_COST_GPU(X)
// clang-format on

#define TVM_GNN_COST_COLUMN(name) v_##name,
enum Column : int { TVM_GNN_COST_VALUES(TVM_GNN_COST_COLUMN) kColumns };
#undef TVM_GNN_COST_COLUMN

inline constexpr int kOwnBegin = v_extent;
inline constexpr int kContextBegin = v_iterations;
inline constexpr int kDepthColumn = v_tree_depth;
inline constexpr int kAccessBegin = v_buffer_bytes;
inline constexpr int kWorkBegin = v_float_ops;
inline constexpr int kTargetBegin = v_cores;
inline constexpr int kGpuBegin = v_grid_blocks;
inline constexpr int kOwnSize = kContextBegin - kOwnBegin;
inline constexpr int kContextSize = kDepthColumn - kContextBegin;
inline constexpr int kAccessSize = kWorkBegin - kAccessBegin;
inline constexpr int kWorkSize = kTargetBegin - kWorkBegin;
inline constexpr int kGpuSize = kColumns - kGpuBegin;

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_VALUES_H_
