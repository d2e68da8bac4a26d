#include "index_form.h"

#include <algorithm>
#include <cmath>

#include "program_graph.h"

namespace tvm_gnn_cost {
namespace {

constexpr int32_t kMaxTerms = 64;  // longer forms are replaced by the sum of their loops

bool IsInteger(double x) { return x == std::floor(x) && std::fabs(x) < 9e15; }

// Whether a is a multiple of b, both integers.
bool Divides(double b, double a) {
  return IsInteger(a) && IsInteger(b) && static_cast<int64_t>(a) % static_cast<int64_t>(b) == 0;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

double Range(const Term& term) { return std::fabs(term.scale) * static_cast<double>(term.extent - 1); }

}  // namespace

void IndexAnalyzer::Reset() {
  terms_.clear();
  bindings_.clear();
  extents_.clear();
  operations_ = 0;
  visits_ = 0;
}

void IndexAnalyzer::Release(Scope scope) {
  terms_.resize(scope.terms);
  bindings_.resize(scope.bindings);
}

void IndexAnalyzer::BindLoop(const TVMFFIObject* var, int32_t loop, int64_t extent, const Form& min) {
  // Its terms are the last, so that the loop's term can follow them.
  Form form = min.count < kMaxTerms ? min : Unknown(min.begin, min.deps);
  extents_.resize(static_cast<size_t>(loop));
  extents_.push_back(extent);
  if (extent > 1) {
    terms_.push_back({loop, 1, extent, 1.0});
    ++form.count;
  }
  if (loop < 64) form.deps |= uint64_t{1} << loop;
  bindings_.push_back({var, form});
}

void IndexAnalyzer::Bind(const TVMFFIObject* var, const Form& form) { bindings_.push_back({var, form}); }

double IndexAnalyzer::Maximum(const Form& form) const {
  double maximum = form.base;
  for (int32_t i = 0; i < form.count; ++i) {
    const Term& term = terms_[form.begin + i];
    if (term.scale > 0) maximum += Range(term);
  }
  return maximum;
}

Form IndexAnalyzer::Variable(const TVMFFIObject* var) {
  visits_ += static_cast<int64_t>(bindings_.size()) / kMaxTerms;
  for (auto it = bindings_.rbegin(); it != bindings_.rend(); ++it) {
    if (it->var != var) continue;
    Form form = it->form;
    const int32_t source = form.begin;
    form.begin = static_cast<int32_t>(terms_.size());
    for (int32_t i = 0; i < form.count; ++i) {
      const Term term = terms_[source + i];
      terms_.push_back(term);
    }
    return form;
  }
  return Constant(0);  // a shape variable or a parameter, which is loop-invariant
}

Form IndexAnalyzer::Product(const Form& a, const Form& b) {
  const Form* factor = a.IsConstant() ? &a : b.IsConstant() ? &b : nullptr;
  if (factor == nullptr) return Unknown(a.begin, a.deps | b.deps);
  Form form = factor == &a ? b : a;
  for (int32_t i = 0; i < form.count; ++i) terms_[form.begin + i].scale *= factor->base;
  form.base *= factor->base;
  return form;
}

// Floor division or modulo by a constant k. Terms that are multiples of k divide exactly. If the others together stay
// below k, the quotient drops them and the remainder keeps them. If not, each is split by itself, which is exact as
// long as finer terms don't carry into coarser ones (as in fused and tiled loops) and an estimate otherwise.
Form IndexAnalyzer::Divide(Form form, const Form& divisor, bool modulo) {
  const double k = divisor.base;
  if (!divisor.IsConstant() || k < 1 || !IsInteger(k)) return Unknown(form.begin, form.deps | divisor.deps);
  const double base_rest = form.base - std::floor(form.base / k) * k;
  double rest = base_rest;
  bool has_negative = false;
  for (int32_t i = 0; i < form.count; ++i) {
    const Term& term = terms_[form.begin + i];
    if (Divides(k, term.scale)) continue;
    rest += Range(term);
    has_negative |= term.scale < 0;
  }
  const bool rest_is_below = rest < k && !has_negative;
  int32_t kept = form.begin;
  for (int32_t i = 0; i < form.count; ++i) {
    Term term = terms_[form.begin + i];
    const double size = std::fabs(term.scale);
    if (Divides(k, term.scale)) {
      if (modulo) continue;
      term.scale /= k;
    } else if (rest_is_below) {
      if (!modulo) continue;
    } else if (size > 0 && Divides(size, k)) {
      const auto steps = static_cast<int64_t>(k / size);
      if (modulo) {
        term.extent = std::min(term.extent, steps);
      } else {
        term.extent = CeilDiv(term.extent, steps);
        if (term.lower > INT64_MAX / steps) continue;
        term.lower *= steps;
        term.scale = term.scale < 0 ? -1.0 : 1.0;
      }
    } else if (!modulo) {
      term.scale /= k;
    } else if (size < k) {
      term.extent = std::min(term.extent, ToInteger(std::ceil(k / std::max(size, 1e-9))));
    } else {
      term.scale = std::fmod(term.scale, k);
      term.extent = std::min(term.extent, static_cast<int64_t>(k));
    }
    if (term.extent > 1) terms_[kept++] = term;
  }
  terms_.resize(static_cast<size_t>(kept));
  form.count = kept - form.begin;
  form.base = modulo ? base_rest : std::floor(form.base / k);
  return form;
}

// min and max clamp an index and a select pads it: the side that depends on loops is the one that addresses memory.
Form IndexAnalyzer::EitherOf(const Form& a, const Form& b) {
  Form form = MoveTo(a.begin, a.count > 0 || b.count == 0 ? a : b);
  form.deps = a.deps | b.deps;
  return form;
}

// The terms of operands are contiguous; the result replaces those of the first operand.
Form IndexAnalyzer::MoveTo(int32_t begin, Form form) {
  std::copy_n(terms_.begin() + form.begin, form.count, terms_.begin() + begin);
  terms_.resize(static_cast<size_t>(begin + form.count));
  form.begin = begin;
  return form;
}

Form IndexAnalyzer::Unknown(int32_t begin, uint64_t deps) {
  terms_.resize(static_cast<size_t>(begin));
  Form form{begin, 0, 0, deps};
  for (size_t loop = 0; loop < extents_.size() && loop < 64; ++loop) {
    if ((deps >> loop & 1) == 0 || extents_[loop] <= 1) continue;
    terms_.push_back({static_cast<int32_t>(loop), 1, extents_[loop], 1.0});
    ++form.count;
  }
  return form;
}

Form IndexAnalyzer::Choice(const TVMFFIObject* condition, const TVMFFIObject* a, const TVMFFIObject* b, int depth) {
  const auto begin = terms_.size();
  const uint64_t deps = Analyze(condition, depth + 1).deps;
  terms_.resize(begin);
  const Form first = Analyze(a, depth + 1);
  const Form second = Analyze(b, depth + 1);
  Form form = EitherOf(first, second);
  form.deps |= deps;
  return form;
}

Form IndexAnalyzer::Analyze(const TVMFFIObject* expr, int depth) {
  if (expr == nullptr) return Constant(0);
  const TypePlan& plan = plans_(expr->type_index);
  if (depth >= kMaxDepth) throw GraphError(TooDeep(plan.type_key));
  if (++visits_ > kMaxVisits || terms_.size() > kMaxVisits) throw GraphError(TooLarge());
  const auto operand = [&](Name name) { return Analyze(ReadObject(expr, plan, name), depth + 1); };
  switch (plan.kind) {
    case Kind::kIntImm: return Constant(ReadNumber(expr, plan, Name::kValue));
    case Kind::kVar: return Variable(expr);
    case Kind::kAdd:
    case Kind::kSub: {
      ++operations_;
      const Form a = operand(Name::kA);
      const Form b = operand(Name::kB);
      const double sign = plan.kind == Kind::kAdd ? 1.0 : -1.0;
      for (int32_t i = 0; i < b.count; ++i) terms_[b.begin + i].scale *= sign;
      const Form sum{a.begin, a.count + b.count, a.base + sign * b.base, a.deps | b.deps};
      return sum.count <= kMaxTerms ? sum : Unknown(a.begin, sum.deps);
    }
    case Kind::kMul: {
      ++operations_;
      const Form a = operand(Name::kA);
      return Product(a, operand(Name::kB));
    }
    case Kind::kFloorDiv:
    case Kind::kFloorMod: {
      ++operations_;
      const Form a = operand(Name::kA);
      return Divide(a, operand(Name::kB), plan.kind == Kind::kFloorMod);
    }
    case Kind::kMin:
    case Kind::kMax: {
      ++operations_;
      const Form a = operand(Name::kA);
      return EitherOf(a, operand(Name::kB));
    }
    case Kind::kCast:
    case Kind::kBroadcast: return operand(Name::kValue);
    case Kind::kRamp: return operand(Name::kBase);
    case Kind::kLet: {
      const Form value = operand(Name::kValue);
      Bind(ReadObject(expr, plan, Name::kVar), value);
      const Form form = operand(Name::kBody);
      bindings_.pop_back();
      return MoveTo(value.begin, form);
    }
    case Kind::kSelect:
      return Choice(ReadObject(expr, plan, Name::kCondition), ReadObject(expr, plan, Name::kTrueValue),
                    ReadObject(expr, plan, Name::kFalseValue), depth);
    case Kind::kCall: {
      const TVMFFIObject* op = ReadNeeded(expr, plan, Name::kOp);
      const TypePlan& op_plan = plans_(op->type_index);
      const TVMFFISeqCell& args = Sequence(ReadNeeded(expr, plan, Name::kArgs));
      const auto* items = static_cast<const TVMFFIAny*>(args.data);
      if (op_plan.kind == Kind::kOp && args.size == 3 && plans_.Op(op, op_plan).chooses) {
        return Choice(ObjectOf(items[0]), ObjectOf(items[1]), ObjectOf(items[2]), depth);
      }
      break;
    }
    default: break;
  }
  const auto begin = static_cast<int32_t>(terms_.size());
  return Unknown(begin, Dependences(expr, plan, depth));
}

uint64_t IndexAnalyzer::Dependences(const TVMFFIObject* object, const TypePlan& plan, int depth) {
  uint64_t deps = 0;
  const auto begin = terms_.size();
  if (plan.kind == Kind::kSequence) {
    const TVMFFISeqCell& cell = Sequence(object);
    const auto* items = static_cast<const TVMFFIAny*>(cell.data);
    for (int64_t i = 0; i < cell.size; ++i) {
      if (ObjectOf(items[i]) == nullptr) continue;
      deps |= Analyze(ObjectOf(items[i]), depth + 1).deps;
      terms_.resize(begin);
    }
    return deps;
  }
  if (!plan.is_node) return 0;
  for (const Field& field : plan.children) {
    if (field.mode != Field::Mode::kPointer) continue;  // operands of expressions are always references
    const auto* child = *static_cast<const TVMFFIObject* const*>(FieldAddress(object, field));
    if (child == nullptr) continue;
    deps |= Analyze(child, depth + (plans_(child->type_index).kind == Kind::kSequence ? 0 : 1)).deps;
    terms_.resize(begin);
  }
  return deps;
}

void IndexAnalyzer::Simplify(Form& form) {
  int32_t kept = 0;
  for (int32_t i = 0; i < form.count; ++i) {
    const Term term = terms_[form.begin + i];
    int32_t same = 0;
    while (same < kept &&
           !(terms_[form.begin + same].loop == term.loop && terms_[form.begin + same].lower == term.lower &&
             terms_[form.begin + same].extent == term.extent)) {
      ++same;
    }
    if (same < kept) {
      terms_[form.begin + same].scale += term.scale;
    } else {
      terms_[form.begin + kept++] = term;
    }
  }
  int32_t moving = 0;
  for (int32_t i = 0; i < kept; ++i) {
    if (terms_[form.begin + i].scale != 0) terms_[form.begin + moving++] = terms_[form.begin + i];
  }
  form.count = moving;
}

}  // namespace tvm_gnn_cost
