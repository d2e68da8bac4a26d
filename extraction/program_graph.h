// The graph of a program, as one walk over its syntax tree leaves it behind.
//
// What is a node. Starting at each PrimFunc of the module (in the order of the functions' names), every object that is
// reached through reflected fields, ancestors' fields first, through arrays (in order) and maps (keys and values, in
// order). A node is any object that is not one of tvm-ffi's own types (strings, functions, tensors; arrays and maps
// are passed through) and neither is nor derives from ir.Type, ir.Attrs, ir.Span, ir.SourceName, ir.SourceMap or ir.Op.
// The fields `span` and `ty` are not followed, with one exception: a variable whose type is a BufferType is a node
// called Buffer, and where the graph meets it first, that type's shape, strides and elem_offset follow as its children
// (later occurrences have none). The same object reached twice is two nodes: the tree is what is written.
//
// A node's name is its type key without tir., tirx., s_tir., ir. or prim.; TensorLoad is called BufferLoad,
// TensorRegion BufferRegion, SBlock Block, SBlockRealize BlockRealize; a Call of an operator is Call.<operator>, of
// anything else Call.<type of the callee>.
//
// detail="statements" leaves out what lies below the fields that KindRules (type_plan.cc) lists as hidden: access
// indices and buffers, iteration bindings and variables, regions, predicates, declarations, loop variables and bounds.
// It leaves out what lies below a Select that only looks up a constant: a chain of them, each with an immediate as its
// true value, that ends in an immediate (the matrices of a Winograd convolution, thousands of nodes otherwise).
// Below these no access is analysed in either detail (no access values, no LOOP or BUFFER edge, no count).
#ifndef TVM_GNN_COST_EXTRACTION_PROGRAM_GRAPH_H_
#define TVM_GNN_COST_EXTRACTION_PROGRAM_GRAPH_H_

#include <tvm/ffi/c_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "values.h"

namespace tvm_gnn_cost {

inline constexpr int kMaxDepth = 1000;        // levels of nodes
// Containers add to the C stack and not to the depth of the tree; a real program has at most one between two nodes.
inline constexpr int kMaxNest = 2 * kMaxDepth + 16;
inline constexpr int64_t kMaxVisits = 1 << 20;  // steps of one walk: shared subtrees can make a small program huge
inline constexpr int kMaxBufferEdges = 64;    // of one buffer: the first pairs, by store and then by load

enum class Relation : int8_t { kChild = 0, kLoop = 1, kBuffer = 2 };

// Why a graph could not be extracted. `is_type_error` says which Python exception it becomes.
struct GraphError : std::runtime_error {
  explicit GraphError(const std::string& message, bool is_type_error = false)
      : std::runtime_error(message), is_type_error(is_type_error) {}
  bool is_type_error;
};

inline std::string TooDeep(const std::string& type_key) {
  return "the program is nested deeper than " + std::to_string(kMaxDepth) + " levels (at a " + type_key + ")";
}

inline std::string TooLarge() {
  return "the program has more than " + std::to_string(kMaxVisits) + " nodes";
}

struct Node {
  int32_t type;      // Registry name
  int32_t parent;    // -1 for the root of a function
  int32_t context;   // row of Graphs::contexts
  int32_t own;       // row of Graphs::owns, or -1
  int32_t access;    // row of Graphs::accesses, or -1
  int32_t work;      // row of Graphs::works, or -1
  int32_t depth;
  DLDataType dtype;  // bits = 0: it has none
  float constants[2];
};

struct Edge {
  int32_t source, target;
  Relation relation;
};

// One worker's graphs, end to end; the rows hold blocks of the columns in values.h. Node, edge and row numbers of
// nodes' parents and of edges count from the graph's first; those of rows from the worker's first.
struct Graphs {
  std::vector<Node> nodes;
  std::vector<Edge> edges;  // without CHILD: that is Node::parent
  std::vector<float> contexts, owns, accesses, works;

  void Clear() {
    nodes.clear();
    edges.clear();
    for (auto* rows : {&contexts, &owns, &accesses, &works}) rows->clear();
  }
};

inline constexpr int kLogTable = 1024;
extern const std::array<float, kLogTable> kLogs;  // log2(1 + i): most counts, extents and depths are small

// log2(1 + x), for x >= 0.
inline float Log(double x) {
  if (x < kLogTable) {
    const auto i = static_cast<int>(x);
    if (static_cast<double>(i) == x) return kLogs[static_cast<size_t>(i)];
  }
  return std::log2(1.0f + static_cast<float>(std::min(x, 3e38)));
}

// sign(x) log2(1 + |x|). Immediates can be infinite or not a number; values never are.
inline float SignedLog(double x) {
  return std::isnan(x) ? 0.0f : std::copysign(Log(std::fabs(x)), static_cast<float>(std::clamp(x, -1.0, 1.0)));
}

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_PROGRAM_GRAPH_H_
