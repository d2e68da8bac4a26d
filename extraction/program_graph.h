// The graph of a program, which the walker (reflect_walker.h) writes in one pass over the syntax tree.
//
// Nodes. The walk starts at each PrimFunc of the module, ordered by name. It follows reflected
// fields (ancestors' first), arrays (in order) and maps (keys and values, in order). Every object that it reaches is a
// node, except tvm-ffi's own types (strings, functions, tensors, and the arrays and maps themselves) and those that are
// or derive from ir.Type, ir.Attrs, ir.Span, ir.SourceName, ir.SourceMap or ir.Op. The fields `span` and `ty` are not
// followed, with one exception: a variable whose type is a BufferType is a node called Buffer, and its first occurrence
// in the graph has that type's shape, strides and elem_offset as children (later ones have none). An object that is
// reached twice is two nodes: the graph is a tree.
//
// Names. A node is named by its type key without tir., tirx., s_tir., ir. or prim. TensorLoad is called BufferLoad,
// TensorRegion BufferRegion, SBlock Block, SBlockRealize BlockRealize. A Call of an operator is Call.<operator>, of
// anything else Call.<type of the callee>.
//
// detail="statements" omits the nodes below the fields that KindRules (type_plan.cc) lists as hidden: access
// indices and buffers, iteration bindings and variables, regions, predicates, declarations, loop variables and bounds.
// It also omits the nodes below a Select that only looks up a constant: a chain of Selects, each with an immediate
// as its true value, that ends in an immediate (the matrices of a Winograd convolution, otherwise thousands of nodes).
// Accesses below these are ignored in both details: they have no access features and no LOOP or BUFFER edges.
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

inline constexpr int kMaxDepth = 1000;  // levels of nodes
// Arrays and maps use the C stack without adding nodes; a real program has at most one between two nodes.
inline constexpr int kMaxNest = 2 * kMaxDepth + 16;
inline constexpr int64_t kMaxVisits = 1 << 20;   // per walk: with shared subtrees, a small program can be a huge tree
inline constexpr int64_t kMaxTouches = 1 << 27;  // sums of footprints: nests of loops around very many accesses
inline constexpr int64_t kMaxFootprints = 1 << 24;  // for each access and each loop around it
inline constexpr int kMaxBufferEdges = 64;          // per buffer: its first pairs, ordered by store and then by load

enum class Relation : int8_t { kChild = 0, kLoop = 1, kBuffer = 2 };

// The reason why a graph could not be extracted: a TypeError in Python if `is_type_error`, otherwise a ValueError.
struct GraphError : std::runtime_error {
  explicit GraphError(const std::string& message, bool is_type_error = false)
      : std::runtime_error(message), is_type_error(is_type_error) {}
  bool is_type_error;
};

inline std::string TooDeep(const std::string& type_key) {
  return "the program is nested deeper than " + std::to_string(kMaxDepth) + " levels (at a " + type_key + ")";
}

inline std::string TooLarge() { return "the program has more than " + std::to_string(kMaxVisits) + " nodes"; }

struct Node {
  int32_t type;     // the name's index in the Registry
  int32_t parent;   // -1 for the root of a function
  int32_t context;  // row of Graphs::contexts
  int32_t own;      // row of Graphs::owns, or -1
  int32_t access;   // row of Graphs::accesses, or -1
  int32_t work;     // row of Graphs::works, or -1
  int32_t gpu;      // row of Graphs::gpus, or -1
  int32_t depth;
  DLDataType dtype;  // bits = 0 for none
  float constants[2];
};

struct Edge {
  int32_t source, target;
  Relation relation;
};

// The concatenated graphs of a worker. Node::parent and Edge are relative to the graph's first node, rows to the
// worker's first row. Each row holds one group of the columns in values.h.
struct Graphs {
  std::vector<Node> nodes;
  std::vector<Edge> edges;  // without CHILD edges: Node::parent has those
  std::vector<float> contexts, owns, accesses, works, gpus;

  void Clear() {
    nodes.clear();
    edges.clear();
    for (auto* rows : {&contexts, &owns, &accesses, &works, &gpus}) rows->clear();
  }
};

// x as an integer, clamped to the range in which doubles are exact: a file can contain any number.
inline int64_t ToInteger(double x) { return std::isnan(x) ? 0 : static_cast<int64_t>(std::clamp(x, -9e15, 9e15)); }

inline constexpr int kLogTable = 1024;
extern const std::array<float, kLogTable> kLogs;  // log2(1 + i): most features are small integers

// log2(1 + x), for x >= 0.
inline float Log(double x) {
  if (x < kLogTable) {
    const auto i = static_cast<int>(x);
    if (static_cast<double>(i) == x) return kLogs[static_cast<size_t>(i)];
  }
  return std::log2(1.0f + static_cast<float>(std::min(x, 3e38)));
}

// sign(x) log2(1 + |x|), finite for every x: immediates can be infinite or NaN, features never are.
inline float SignedLog(double x) {
  return std::isnan(x) ? 0.0f : std::copysign(Log(std::fabs(x)), static_cast<float>(std::clamp(x, -1.0, 1.0)));
}

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_PROGRAM_GRAPH_H_
