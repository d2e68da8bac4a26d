// Index expressions as sums of loop terms, which tell how loops move an address without lowering the program.
#ifndef TVM_GNN_COST_EXTRACTION_INDEX_FORM_H_
#define TVM_GNN_COST_EXTRACTION_INDEX_FORM_H_

#include <cstdint>
#include <vector>

#include "type_plan.h"

namespace tvm_gnn_cost {

// One summand: ((loop // lower) % extent) * scale, as in tvm::arith::IterSplitExpr (iter_affine_map.h). `loop` is the
// loop's position in the nest, 0 for the outermost. A scale can be a fraction: (i * 3) // 4 moves by 3/4 an iteration
// on average.
struct Term {
  int32_t loop;
  int64_t lower;
  int64_t extent;
  double scale;
};

// The sum: base plus the analyzer's terms [begin, begin + count). `deps` has a bit for each of the nest's first 64
// loops that the expression uses, including loops of extent 1.
struct Form {
  int32_t begin = 0;
  int32_t count = 0;
  double base = 0;
  uint64_t deps = 0;
  bool IsConstant() const { return count == 0 && deps == 0; }
};

// Converts expressions to forms. Sums, differences, and products, quotients and remainders by a constant are exact
// where possible. Of min, max and select, one side is taken. Anything else becomes the sum of the loops that it
// depends on: range and dependences are right, strides are not.
class IndexAnalyzer {
 public:
  explicit IndexAnalyzer(PlanCache& plans) : plans_(plans) {}

  void Reset();
  // Release() removes the bindings since the Mark(); scopes nest.
  struct Scope {
    size_t terms, bindings;
  };
  Scope Mark() const { return {terms_.size(), bindings_.size()}; }
  void Release(Scope scope);

  // Binds the variable of the loop at position `loop` of the nest, which takes `extent` values from `min` on.
  void BindLoop(const TVMFFIObject* var, int32_t loop, int64_t extent, const Form& min);
  void Bind(const TVMFFIObject* var, const Form& form);
  // The terms of the result are at the end of `terms_` until an enclosing scope is released. `depth` is the
  // expression's depth in the syntax tree. Throws GraphError beyond kMaxDepth and kMaxVisits.
  Form Analyze(const TVMFFIObject* expr, int depth);
  // Adds up terms that differ only in their scale, and drops those with scale 0.
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
  struct Binding {
    const TVMFFIObject* var;
    Form form;
  };
  // A list, searched from the end: there are a few dozen, and the innermost ones are used most.
  std::vector<Binding> bindings_;
  std::vector<int64_t> extents_;  // of the nest's loops, outermost first
  double operations_ = 0;
  int64_t visits_ = 0;
};

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_INDEX_FORM_H_
