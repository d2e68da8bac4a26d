// Copies the functions of a module of TVM up to 0.19 to tvm-ffi objects, so that a single walker reads all versions.
//
// A copy's type key is "mirror." + the original's, and its attributes are reflected fields. Where the
// versions differ, the copy follows TVM 0.25 and newer: an expression's dtype is a PrimType in the field `ty`; a Buffer
// is a variable whose `ty` is a BufferType; a function's params are the buffers that they are bound to; types,
// attributes and source positions are omitted. A map whose keys are not strings becomes an array of alternating keys
// and values.
#ifndef TVM_GNN_COST_EXTRACTION_AUTO_SCHEDULER_MIRROR_H_
#define TVM_GNN_COST_EXTRACTION_AUTO_SCHEDULER_MIRROR_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/c_api.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "auto_scheduler_tvm.h"

namespace tvm_gnn_cost {

// How objects of one type are copied.
struct MirrorSchema {
  enum class Kind : uint8_t { kSkipped, kText, kArray, kMap, kModule, kFunction, kOperator, kVariable, kBuffer, kNode };
  struct Attribute {
    std::string name;
    bool is_dtype;   // the copy holds it as a PrimType in `ty`
    bool is_object;  // the copy holds a reference, otherwise an Any
    int64_t offset;
  };
  Kind kind = Kind::kSkipped;
  int32_t mirror_type = -1;
  std::vector<Attribute> attributes;
  int64_t bytes = 0;
};

// Holds the copies of one module at a time; the next module reuses their memory.
class ModuleMirror {
 public:
  // Copies the module's PrimFuncs and returns them by name. They live until the next call. Throws GraphError.
  std::vector<std::pair<std::string, const TVMFFIObject*>> Copy(const AutoSchedulerTVM& tvm, void* module);

 private:
  const MirrorSchema& SchemaOf(void* object);
  TVMFFIObject* CopyObject(void* object, int nest);
  TVMFFIObject* CopyArray(void* array, int nest);
  TVMFFIObject* CopyMap(void* map, int nest);
  TVMFFIObject* CopyNode(void* object, const MirrorSchema& schema, int nest);
  TVMFFIObject* CopyFunction(void* function, int nest);
  TVMFFIObject* CopyBuffer(void* buffer, int nest);
  TVMFFIObject* Child(void* object, const char* attribute, int nest);
  TVMFFIObject* ElementType(const PackedValue& dtype);
  TVMFFIObject* NewArray(const std::vector<TVMFFIObject*>& items);
  TVMFFIObject* NewObject(int32_t type_index, int64_t bytes);

  const AutoSchedulerTVM* tvm_ = nullptr;
  std::unordered_map<uint32_t, const MirrorSchema*> schemas_;
  // Of the current module:
  std::unordered_map<void*, TVMFFIObject*> copies_;
  std::unordered_map<std::string, TVMFFIObject*> element_types_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<tvm::ffi::Any> held_;  // strings and maps; they reference copies, so they are destroyed before the blocks
  size_t block_ = 0;                 // the current block
  size_t used_ = 0;                  // bytes used in it
};

}  // namespace tvm_gnn_cost

#endif  // TVM_GNN_COST_EXTRACTION_AUTO_SCHEDULER_MIRROR_H_
