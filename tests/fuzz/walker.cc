// Fuzzes the extractor's walker: makes a module out of bytes and extracts it in both details.
//
// The extractor parses no file itself. Its input is the object graph that TVM's deserialiser makes of one, so the bytes
// are read as instructions that build such a graph, with tvm-ffi's objects alone: nodes of any type with the children
// that their fields may have. A reference can be empty, parts can be shared, and a part can contain itself.
//
// With clang and -fsanitize=fuzzer, libFuzzer drives it. Otherwise main() replays files and then changes their bytes at
// random: walker SECONDS SEED FILE...
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>

#include "../../extraction/api.cc"
#include "../../extraction/registered_types.h"

namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Map;
using tvm::ffi::String;
using tvm::ffi::Tensor;
using tvm_gnn_cost::GetAny;
using tvm_gnn_cost::GetDType;
using tvm_gnn_cost::GetObject;
using tvm_gnn_cost::kFirstSlot;
using tvm_gnn_cost::kSlot;
using tvm_gnn_cost::RegisterField;
using tvm_gnn_cost::RegisterType;

// What a field holds: a number or text, or an object that is one of the types with this role.
enum Role : int {
  kExpr,
  kStmt,
  kVar,
  kBuffer,
  kBlock,
  kIterVar,
  kRange,
  kType,
  kOp,
  kFunction,
  kRoles,
  kExprs,
  kStmts,
  kVars,
  kIterVars,
  kRanges,
  kAnnotations,
  kShape,
  kInt32,
  kInt64,
  kFloat,
  kNumber,
  kText,
  kDType,
};

struct FieldOf {
  const char* name;
  Role role;
};

struct NodeType {
  const char* key;
  Role role;
  std::vector<FieldOf> fields;
  int32_t index = -1;
};

template <typename T>
int GetInt(void* field, TVMFFIAny* result) {
  *reinterpret_cast<Any*>(result) = static_cast<int64_t>(*static_cast<T*>(field));
  return 0;
}

int GetFloat(void* field, TVMFFIAny* result) {
  *reinterpret_cast<Any*>(result) = *static_cast<double*>(field);
  return 0;
}

// The types with the fields that today's TVM and the copies of an older one have (extraction/type_plan.cc).
std::vector<NodeType>& Types() {
  static auto* types = new std::vector<NodeType>{
      {"ir.PrimType", kType, {{"dtype", kDType}}},
      {"ir.BufferType", kType, {{"dtype", kType}, {"shape", kShape}, {"strides", kExprs}, {"elem_offset", kExpr}}},
      {"tirx.Var", kVar, {{"ty", kType}}},
      {"tirx.Buffer", kBuffer, {{"ty", kType}}},
      {"ir.Op", kOp, {{"name", kText}}},
      {"ir.GlobalVar", kOp, {{"name_hint", kText}}},
      {"tirx.IntImm", kExpr, {{"ty", kType}, {"value", kInt64}}},
      {"ir.IntImm", kExpr, {{"ty", kType}, {"value", kNumber}}},
      {"tirx.FloatImm", kExpr, {{"ty", kType}, {"value", kFloat}}},
      {"tirx.Add", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.Sub", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.Mul", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.FloorDiv", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.FloorMod", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.Div", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.Min", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.Max", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.EQ", kExpr, {{"ty", kType}, {"a", kExpr}, {"b", kExpr}}},
      {"tirx.Cast", kExpr, {{"ty", kType}, {"value", kExpr}}},
      {"tirx.Ramp", kExpr, {{"ty", kType}, {"base", kExpr}, {"stride", kExpr}, {"lanes", kExpr}}},
      {"tirx.Broadcast", kExpr, {{"ty", kType}, {"value", kExpr}, {"lanes", kExpr}}},
      {"tirx.Select", kExpr, {{"ty", kType}, {"condition", kExpr}, {"true_value", kExpr}, {"false_value", kExpr}}},
      {"tirx.Call", kExpr, {{"ty", kType}, {"op", kOp}, {"args", kExprs}}},
      {"tirx.Let", kExpr, {{"ty", kType}, {"var", kVar}, {"value", kExpr}, {"body", kExpr}}},
      {"tirx.TensorLoad", kExpr, {{"ty", kType}, {"source", kBuffer}, {"indices", kExprs}}},
      {"tir.BufferLoad", kExpr, {{"ty", kType}, {"buffer", kBuffer}, {"indices", kExprs}}},
      {"tirx.For",
       kStmt,
       {{"loop_var", kVar},
        {"min", kExpr},
        {"extent", kExpr},
        {"kind", kInt32},
        {"body", kStmt},
        {"thread_binding", kIterVar},
        {"annotations", kAnnotations},
        {"step", kExpr}}},
      {"s_tir.SBlockRealize", kStmt, {{"iter_values", kExprs}, {"predicate", kExpr}, {"block", kBlock}}},
      {"s_tir.SBlock",
       kBlock,
       {{"iter_vars", kIterVars},
        {"alloc_buffers", kVars},
        {"annotations", kAnnotations},
        {"init", kStmt},
        {"body", kStmt}}},
      {"tirx.IterVar", kIterVar, {{"dom", kRange}, {"var", kVar}, {"iter_type", kInt32}, {"thread_tag", kText}}},
      {"ir.Range", kRange, {{"min", kExpr}, {"extent", kExpr}}},
      {"tirx.BufferStore", kStmt, {{"buffer", kBuffer}, {"value", kExpr}, {"indices", kExprs}, {"predicate", kExpr}}},
      {"tir.AttrStmt", kStmt, {{"node", kIterVar}, {"attr_key", kText}, {"value", kExpr}, {"body", kStmt}}},
      {"tir.BufferRealize", kStmt, {{"buffer", kBuffer}, {"bounds", kRanges}, {"condition", kExpr}, {"body", kStmt}}},
      {"tirx.Bind", kStmt, {{"var", kVar}, {"value", kExpr}}},
      {"tirx.AllocBuffer", kStmt, {{"buffer", kBuffer}, {"annotations", kAnnotations}}},
      {"tirx.SeqStmt", kStmt, {{"seq", kStmts}}},
      {"tirx.IfThenElse", kStmt, {{"condition", kExpr}, {"then_case", kStmt}, {"else_case", kStmt}}},
      {"tirx.Evaluate", kStmt, {{"value", kExpr}}},
      {"tirx.PrimFunc", kFunction, {{"params", kVars}, {"body", kStmt}}},
      {"ir.IRModule", kRoles, {}},
  };
  return *types;
}

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the graph is wrong: %s\n", what);
  std::abort();
}

int64_t OffsetOf(size_t field) { return kFirstSlot + static_cast<int64_t>(field) * kSlot; }

void RegisterTypes() {
  for (NodeType& type : Types()) {
    type.index = RegisterType(type.key);
    if (type.role == kRoles) RegisterField(type.index, "functions", OffsetOf(0), kTVMFFIMap, 8, GetObject);
    for (size_t i = 0; i < type.fields.size(); ++i) {
      const FieldOf& field = type.fields[i];
      const int64_t offset = OffsetOf(i);
      switch (field.role) {
        case kInt32: RegisterField(type.index, field.name, offset, kTVMFFIInt, 4, GetInt<int32_t>); break;
        case kInt64: RegisterField(type.index, field.name, offset, kTVMFFIInt, 8, GetInt<int64_t>); break;
        case kFloat: RegisterField(type.index, field.name, offset, kTVMFFIFloat, 8, GetFloat); break;
        case kDType: RegisterField(type.index, field.name, offset, kTVMFFIDataType, 4, GetDType); break;
        case kNumber:
        case kText: RegisterField(type.index, field.name, offset, kTVMFFIAny, kSlot, GetAny); break;
        case kExprs:
        case kStmts:
        case kVars:
        case kIterVars:
        case kRanges:
        case kShape: RegisterField(type.index, field.name, offset, kTVMFFIArray, 8, GetObject); break;
        case kAnnotations: RegisterField(type.index, field.name, offset, kTVMFFIMap, 8, GetObject); break;
        default: RegisterField(type.index, field.name, offset, kTVMFFIObject, 8, GetObject); break;
      }
    }
  }
}

// Reads instructions from bytes and builds the objects of one module.
class Builder {
 public:
  Builder(const uint8_t* data, size_t size) : data_(data), left_(size) {
    for (const NodeType& type : Types()) by_role_[type.role].push_back(&type);
  }

  Any Module() {
    const uint8_t kind = Byte();
    may_contain_itself_ = kind % 8 == 7;
    is_large_ = kind % 64 == 6;
    Map<Any, Any> functions;
    const size_t count = 1 + Byte() % 2;
    for (size_t i = 0; i < count; ++i) {
      TVMFFIObject* name = New(*by_role_[kOp][1], 0);
      functions.Set(View(name), View(Make(kFunction, 0)));
    }
    held_.emplace_back(functions);
    TVMFFIObject* module = Allocate(Types().back().index, OffsetOf(1));
    Reference(module, 0) = reinterpret_cast<const TVMFFIAny*>(&held_.back())->v_obj;
    return View(module);
  }

 private:
  // With these every input takes microseconds, apart from large ones: those reach the walker's own limits.
  static constexpr size_t kMaxObjects = 1 << 9, kMaxObjectsOfLarge = 1 << 13;
  static constexpr int64_t kSharedSize = 8;
  static constexpr int kDeepest = 1200;  // deeper than the walker goes

  bool IsFull() const { return memory_.size() >= (is_large_ ? kMaxObjectsOfLarge : kMaxObjects); }

  uint8_t Byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }

  int64_t Integer() {
    static constexpr int64_t kSpecial[] = {0,         1,         -1,        2,         16,      64,
                                           INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, 1 << 20, int64_t{1} << 53};
    const uint8_t first = Byte();
    if (first < 128) return first;
    if (first < 192) return kSpecial[first % std::size(kSpecial)];
    uint64_t value = 0;
    for (int i = 0; i < first % 8; ++i) value = value << 8 | Byte();
    return first < 224 ? static_cast<int64_t>(value) : -static_cast<int64_t>(value);
  }

  static TVMFFIObject*& Reference(TVMFFIObject* object, size_t field) {
    return *reinterpret_cast<TVMFFIObject**>(reinterpret_cast<char*>(object) + OffsetOf(field));
  }

  static Any View(TVMFFIObject* object) {
    TVMFFIAny view{};
    view.v_obj = object;
    view.type_index = object == nullptr ? static_cast<int32_t>(kTVMFFINone) : object->type_index;
    Any held;
    GetAny(&view, reinterpret_cast<TVMFFIAny*>(&held));
    return held;
  }

  // Held once too often, so that it is never freed; the builder's memory goes as a whole.
  TVMFFIObject* Allocate(int32_t type, int64_t bytes) {
    memory_.push_back(std::make_unique<char[]>(static_cast<size_t>(bytes)));
    std::memset(memory_.back().get(), 0, static_cast<size_t>(bytes));
    auto* object = reinterpret_cast<TVMFFIObject*>(memory_.back().get());
    object->type_index = type;
    object->combined_ref_count = (uint64_t{1} << 32) | 1;
    return object;
  }

  // An object with a role, or null.
  TVMFFIObject* Make(Role role, int depth) {
    const uint8_t choice = Byte();
    auto& made = made_[role];
    ++made_count_;
    if (role != kFunction && choice >= 250) return nullptr;
    if (role == kBuffer && choice % 3 == 2) role = kVar;  // in the copies of an older TVM a buffer is a variable
    const bool is_full = IsFull() || depth >= kDeepest || left_ == 0;
    if (!made.empty() && (is_full || choice >= 160)) {
      made_count_ += kSharedSize;
      return made[(choice + Byte()) % made.size()];
    }
    if (is_full) return role == kFunction ? New(*by_role_[role][0], kDeepest) : nullptr;
    if (role == kOp) return Operator(choice);
    const auto& types = by_role_[role];
    if (role == kExpr && choice % 8 == 3) return Make(kVar, depth);
    if (role == kExpr && choice % 32 == 8) return Chain(depth);
    return New(*types[choice % types.size()], depth);
  }

  // The registry knows operators by address, so they live as long as the process.
  static TVMFFIObject* Operator(size_t number) {
    static const char* const names[] = {"tirx.if_then_else", "tirx.exp", "tir.likely", "tirx.ret", ""};
    static auto* known = [] {
      auto* made = new std::vector<TVMFFIObject*>();
      const NodeType& type = *std::find_if(Types().begin(), Types().end(),
                                           [](const NodeType& one) { return std::string("ir.Op") == one.key; });
      static auto* texts = new std::vector<Any>();
      for (const char* name : names) texts->emplace_back(String(name));
      for (size_t i = 0; i < std::size(names); ++i) {
        auto* object = static_cast<TVMFFIObject*>(std::calloc(1, static_cast<size_t>(OffsetOf(1))));
        object->type_index = type.index;
        object->combined_ref_count = (uint64_t{1} << 32) | 1;
        *reinterpret_cast<TVMFFIAny*>(reinterpret_cast<char*>(object) + OffsetOf(0)) =
            *reinterpret_cast<const TVMFFIAny*>(&(*texts)[i]);
        made->push_back(object);
      }
      return made;
    }();
    return (*known)[number % known->size()];
  }

  // A sum of many terms.
  TVMFFIObject* Chain(int depth) {
    TVMFFIObject* sum = Make(kExpr, depth + 1);
    TVMFFIObject* term = Make(kExpr, depth + 1);
    for (int i = Byte() * 5; i > 0 && !IsFull(); --i) {
      const NodeType& type = *by_role_[kExpr][3];
      TVMFFIObject* next = Allocate(type.index, OffsetOf(type.fields.size()));
      Reference(next, 1) = sum;
      Reference(next, 2) = term;
      sum = next;
    }
    made_[kExpr].push_back(sum);
    return sum;
  }

  TVMFFIObject* New(const NodeType& type, int depth) {
    TVMFFIObject* object = Allocate(type.index, OffsetOf(type.fields.size()));
    const int64_t before = made_count_;
    if (may_contain_itself_ && type.role != kType) made_[type.role].push_back(object);
    for (size_t i = 0; i < type.fields.size(); ++i) Fill(object, i, type.fields[i].role, depth);
    const bool is_shared = is_large_ || made_count_ - before <= kSharedSize;
    if ((!may_contain_itself_ || type.role == kType) && is_shared) made_[type.role].push_back(object);
    return object;
  }

  void Fill(TVMFFIObject* object, size_t field, Role role, int depth) {
    void* at = reinterpret_cast<char*>(object) + OffsetOf(field);
    switch (role) {
      case kInt32: *static_cast<int32_t*>(at) = static_cast<int32_t>(Integer()); return;
      case kInt64: *static_cast<int64_t*>(at) = Integer(); return;
      case kFloat: *static_cast<double*>(at) = Float(); return;
      case kDType: *static_cast<DLDataType*>(at) = DType(); return;
      case kNumber: {
        const uint8_t kind = Byte() % 4;
        held_.push_back(kind == 0 ? Any(Float()) : kind == 1 ? Any(String("a long integer")) : Any(Integer()));
        *static_cast<TVMFFIAny*>(at) = *reinterpret_cast<const TVMFFIAny*>(&held_.back());
        return;
      }
      case kText: {
        held_.emplace_back(String(Text()));
        *static_cast<TVMFFIAny*>(at) = *reinterpret_cast<const TVMFFIAny*>(&held_.back());
        return;
      }
      case kExprs: Reference(object, field) = Sequence(kExpr, depth); return;
      case kStmts: Reference(object, field) = Sequence(kStmt, depth); return;
      case kVars: Reference(object, field) = Sequence(kBuffer, depth); return;
      case kIterVars: Reference(object, field) = Sequence(kIterVar, depth); return;
      case kRanges: Reference(object, field) = Sequence(kRange, depth); return;
      case kShape: Reference(object, field) = Sequence(kExpr, depth); return;
      case kAnnotations: Reference(object, field) = Annotations(); return;
      // A BufferType's element type is a PrimType: TVM checks that when it reads a file.
      case kType:
        Reference(object, field) =
            object->type_index == by_role_[kType][1]->index ? New(*by_role_[kType][0], depth) : Make(kType, depth + 1);
        return;
      default: Reference(object, field) = Make(role, depth + 1); return;
    }
  }

  double Float() {
    static constexpr double kSpecial[] = {0.0, -0.0, 1.5, -2.5, 1e308, -1e308, 1e-310, INFINITY, -INFINITY, NAN};
    return kSpecial[Byte() % std::size(kSpecial)];
  }

  DLDataType DType() {
    static constexpr uint8_t kBits[] = {32, 8, 64, 1, 16, 0, 255};
    const uint8_t code = Byte(), bits = Byte(), lanes = Byte();
    return {static_cast<uint8_t>(code < 200 ? code % 3 : code), kBits[bits % std::size(kBits)],
            static_cast<uint16_t>(lanes < 200   ? 1
                                  : lanes < 250 ? lanes - 198
                                                : 0xFFFF)};
  }

  const char* Text() {
    static const char* const kTexts[] = {"",
                                         "main",
                                         "pragma_auto_unroll_max_step",
                                         "pragma_unroll_explicit",
                                         "meta_schedule.unroll_explicit",
                                         "meta_schedule.unroll_implicit",
                                         "\xff"};
    return kTexts[Byte() % std::size(kTexts)];
  }

  TVMFFIObject* Sequence(Role role, int depth) {
    const uint8_t length = Byte();
    if (length >= 252) return nullptr;
    // Long ones repeat their last items: a small file can hold many references to one object.
    const size_t size = length < 240 || !is_large_ ? length % 7 : size_t{1} << (length - 236);
    std::vector<TVMFFIObject*> items;
    for (size_t i = 0; i < std::min<size_t>(size, 8); ++i) items.push_back(Make(role, depth + 1));
    constexpr auto kCell = static_cast<int64_t>((sizeof(TVMFFIObject) + sizeof(TVMFFISeqCell) + 15) / 16 * 16);
    TVMFFIObject* array = Allocate(kTVMFFIArray, kCell + static_cast<int64_t>(size) * kSlot);
    auto* cell = reinterpret_cast<TVMFFISeqCell*>(array + 1);
    cell->data = reinterpret_cast<char*>(array) + kCell;
    cell->size = cell->capacity = static_cast<int64_t>(size);
    for (size_t i = 0; i < size; ++i) {
      auto& slot = static_cast<TVMFFIAny*>(cell->data)[i];
      slot.v_obj = items[i % items.size()];
      slot.type_index = slot.v_obj == nullptr ? static_cast<int32_t>(kTVMFFINone) : slot.v_obj->type_index;
    }
    return array;
  }

  TVMFFIObject* Annotations() {
    const uint8_t length = Byte();
    if (length >= 250) return nullptr;
    Map<String, Any> map;
    for (int i = length < 200 ? 0 : length % 3; i > 0; --i) {
      const String key(Text());
      const uint8_t kind = Byte() % 4;
      if (kind == 0) {
        map.Set(key, View(Make(kExpr, kDeepest)));
      } else {
        map.Set(key, kind == 1 ? Any(Float()) : kind == 2 ? Any(String("text")) : Any(Integer()));
      }
    }
    held_.emplace_back(map);
    return reinterpret_cast<const TVMFFIAny*>(&held_.back())->v_obj;
  }

  const uint8_t* data_;
  size_t left_;
  bool may_contain_itself_ = false, is_large_ = false;
  int64_t made_count_ = 0;  // of one object: about as many as the walk will visit in it
  std::vector<const NodeType*> by_role_[kRoles + 1];
  std::vector<TVMFFIObject*> made_[kRoles + 1];
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<Any> held_;  // goes before the memory
};

void Check(const Array<Any>& out) {
  const auto nodes = out[1].cast<Tensor>(), values = out[2].cast<Tensor>(), edges = out[3].cast<Tensor>();
  const auto relation = out[4].cast<Tensor>();
  const auto names = static_cast<int32_t>(out[0].cast<Array<Any>>().size());
  const int64_t count = nodes.size(0), edge_count = relation.size(0);
  Require(values.size(0) == count && edges.size(1) == edge_count, "the arrays do not fit together");
  for (int64_t i = 0; i < count; ++i) {
    const int32_t type = static_cast<const int32_t*>(nodes.data_ptr())[i];
    Require(type >= 0 && type < names, "a node has no name");
  }
  const auto* value = static_cast<const float*>(values.data_ptr());
  for (int64_t i = 0; i < count * values.size(1); ++i) Require(std::isfinite(value[i]), "a value is not finite");
  const auto* end = static_cast<const int32_t*>(edges.data_ptr());
  for (int64_t i = 0; i < 2 * edge_count; ++i) Require(end[i] >= 0 && end[i] < count, "an edge leads nowhere");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool is_ready = [] {
    RegisterTypes();
    return true;
  }();
  (void)is_ready;
  Builder builder(data, size);
  Array<Any> modules;
  modules.push_back(builder.Module());
  for (const bool is_tree : {true, false}) Check(tvm_gnn_cost::Extract(modules, is_tree, 1, true));
  return 0;
}

#ifndef TVM_GNN_COST_LIBFUZZER
int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: %s SECONDS SEED FILE...\n", arguments[0]);
    return 2;
  }
  const double seconds = std::atof(arguments[1]);
  std::mt19937_64 rng(static_cast<uint64_t>(std::atoll(arguments[2])));
  std::vector<std::vector<uint8_t>> corpus;
  for (int i = 3; i < count; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
  }
  if (corpus.empty()) corpus.emplace_back(64, 0);
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  size_t inputs = corpus.size();
  double slowest = 0;
  while (spent() < seconds) {
    std::vector<uint8_t> input = corpus[rng() % corpus.size()];
    for (uint64_t change = 1 + rng() % 16; change > 0; --change) {
      const size_t at = input.empty() ? 0 : rng() % input.size();
      const auto byte = static_cast<uint8_t>(rng());
      if (input.empty() || rng() % 4 == 0) {
        input.insert(input.begin() + static_cast<int64_t>(at), byte);
      } else if (rng() % 4 == 0) {
        input.erase(input.begin() + static_cast<int64_t>(at));
      } else {
        input[at] = byte;
      }
    }
    const double before = spent();
    LLVMFuzzerTestOneInput(input.data(), input.size());
    slowest = std::max(slowest, spent() - before);
    ++inputs;
  }
  std::printf("%zu inputs, the slowest took %.2f s\n", inputs, slowest);
  return 0;
}
#endif
