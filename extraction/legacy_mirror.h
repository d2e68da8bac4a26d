// Copies the functions of a module of a TVM up to 0.19 into objects that the walker reads as it reads today's.
//
// A copy has the type key "mirror." + the original's and its attributes as reflected fields, with these differences,
// which make it what the same node is in today's TVM: an expression's dtype is a PrimType in the field `ty`; a Buffer
// is a variable whose `ty` is a BufferType; a function's params are their buffers; types, attributes and source
// positions are left out. A map is an array of its keys and values in turn.
#ifndef TVM_GNN_COST_EXTRACTION_LEGACY_MIRROR_H_
#define TVM_GNN_COST_EXTRACTION_LEGACY_MIRROR_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/c_api.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "legacy_tvm.h"

namespace tvm_gnn_cost {

// How to copy the objects of one type.
struct LegacySchema {
  enum class Kind : uint8_t { kSkipped, kText, kArray, kMap, kModule, kFunction, kOperator, kVariable, kBuffer, kNode };
  struct Attribute {
    std::string name;
    bool is_dtype;   // becomes `ty`
    bool is_object;  // a reference, else an Any
    int64_t offset;
  };
  Kind kind = Kind::kSkipped;
  int32_t mirror_type = -1;
  std::vector<Attribute> attributes;
  int64_t bytes = 0;
};

// The copies of one module at a time, in memory that is used again for the next.
class LegacyMirror {
 public:
  // The PrimFuncs of the module, by name; they live until the next call. Throws GraphError.
  std::vector<std::pair<std::string, const TVMFFIObject*>> Copy(const LegacyTVM& tvm, void* module);

 private:
  const LegacySchema& SchemaOf(void* object);
  TVMFFIObject* CopyObject(void* object, int nest);
  TVMFFIObject* CopyArray(void* array, int nest);
  TVMFFIObject* CopyNode(void* object, const LegacySchema& schema, int nest);
  TVMFFIObject* CopyFunction(void* function, int nest);
  TVMFFIObject* CopyBuffer(void* buffer, int nest);
  TVMFFIObject* Child(void* object, const char* attribute, int nest);
  TVMFFIObject* ElementType(const LegacyValue& dtype);
  TVMFFIObject* NewArray(const std::vector<TVMFFIObject*>& items);
  TVMFFIObject* NewObject(int32_t type_index, int64_t bytes);

  const LegacyTVM* tvm_ = nullptr;
  std::unordered_map<uint32_t, const LegacySchema*> schemas_;
  // of the module at hand
  std::unordered_map<void*, TVMFFIObject*> copies_;
  std::unordered_map<std::string, TVMFFIObject*> element_types_;
  std::vector<tvm::ffi::Any> texts_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t block_ = 0;  // the one that is being filled
  size_t used_ = 0;   // bytes of it
};

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_LEGACY_MIRROR_H_
