// An index expression as a sum of loop splits: what a walk can know about an address without lowering the program.
#ifndef TVM_GNN_COST_EXTRACTION_INDEX_FORM_H_
#define TVM_GNN_COST_EXTRACTION_INDEX_FORM_H_

#include <cstdint>
#include <vector>

#include "type_plan.h"

namespace tvm_gnn_cost {

// ((loop // lower) % extent) * scale, as in tvm::arith::IterSplitExpr (iter_affine_map.h). `loop` is the position in
// the nest, 0 the outermost. A scale may be a fraction: (i * 3) // 4 moves by 3/4 an iteration on average.
struct Term {
  int32_t loop;
  int64_t lower;
  int64_t extent;
  double scale;
};

// base + the terms[begin, begin + count) of the analyser. `deps` has a bit for each loop of the nest that the
// expression mentions (the first 64), those whose extent is 1 included.
struct Form {
  int32_t begin = 0;
  int32_t count = 0;
  double base = 0;
  uint64_t deps = 0;
  bool IsConstant() const { return count == 0 && deps == 0; }
};

// Closed under +, -, * constant, // constant and % constant; of min, max and a choice it takes one side; anything else
// becomes the plain sum of the loops it depends on, so that its range and its dependences stay right, if not its order.
class IndexAnalyzer {
 public:
  explicit IndexAnalyzer(PlanCache& plans) : plans_(plans) {}

  void Reset();
  // Scopes nest: what was bound after Mark() is forgotten by Release().
  struct Scope { size_t terms, bindings; };
  Scope Mark() const { return {terms_.size(), bindings_.size()}; }
  void Release(Scope scope);

  // A loop variable that runs from `min` over `extent` values, at a position of the nest.
  void BindLoop(const TVMFFIObject* var, int32_t loop, int64_t extent, const Form& min);
  void Bind(const TVMFFIObject* var, const Form& form);
  // The form's terms lie at the end of the arena until a scope around them is released. Throws GraphError beyond the
  // nesting limit; `depth` is that of the expression in the syntax tree.
  Form Analyze(const TVMFFIObject* expr, int depth);
  // Adds up equal splits and drops those that do not move.
  void Simplify(Form& form);
  double Maximum(const Form& form) const;

  const Term* terms(const Form& form) const { return terms_.data() + form.begin; }
  double operations() const { return operations_; }

 private:
  Form Constant(double value) const { return {static_cast<int32_t>(terms_.size()), 0, value, 0}; }
  Form Variable(const TVMFFIObject* var);
  Form Product(const Form& a, const Form& b);
  Form Divide(Form form, const Form& divisor, bool modulo);
  Form EitherOf(const Form& a, const Form& b);
  Form MoveTo(int32_t begin, Form form);
  Form Choice(const TVMFFIObject* condition, const TVMFFIObject* a, const TVMFFIObject* b, int depth);
  Form Unknown(int32_t begin, uint64_t deps);
  uint64_t Dependences(const TVMFFIObject* object, const TypePlan& plan, int depth);

  PlanCache& plans_;
  std::vector<Term> terms_;
  struct Binding { const TVMFFIObject* var; Form form; };
  std::vector<Binding> bindings_;  // searched from the end: a few dozen, and the innermost are the ones asked for
  std::vector<int64_t> extents_;  // of the loops of the nest
  double operations_ = 0;
  int64_t visits_ = 0;
};

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_INDEX_FORM_H_
