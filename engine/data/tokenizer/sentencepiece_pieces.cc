#include "engine/data/tokenizer/sentencepiece_pieces.h"

#include <optional>

namespace trimtab {
namespace {

// Of sentencepiece_model.proto.
constexpr uint64_t kPieces = 1;  // of ModelProto
constexpr uint64_t kName = 1;    // of SentencePiece
constexpr uint64_t kType = 3;
constexpr char kControl = 3;
constexpr char kUserDefined = 4;

/// Where a field's value is in the bytes of its message.
struct Field {
  uint64_t number = 0;
  size_t begin = 0;
  size_t end = 0;
};

/// Reads the fields of a message one after the other (Protocol Buffers' wire format).
class FieldReader {
 public:
  /// Reads bytes [at, end).
  FieldReader(std::string_view bytes, size_t at, size_t end)
      : bytes_(bytes.substr(0, end)), at_(at) {}

  /// Nothing at the end, and where the bytes are no fields.
  std::optional<Field> Next() {
    const std::optional<uint64_t> tag = Varint();
    if (!tag) return std::nullopt;
    size_t begin = at_;
    std::optional<uint64_t> size;
    switch (*tag & 7) {
      case 0:
        if (Varint()) size = at_ - begin;
        break;
      case 1:
        size = 8;
        break;
      case 2:
        size = Varint();
        begin = at_;
        break;
      case 5:
        size = 4;
        break;
      default:
        break;
    }
    if (!size || *size > bytes_.size() - begin) return std::nullopt;
    at_ = begin + *size;
    return Field{*tag >> 3, begin, at_};
  }

 private:
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view bytes_;
  size_t at_;
};

}  // namespace

void MakeControlPieces(std::string& model,
                       const std::function<bool(int32_t id, std::string_view name)>& is_special) {
  FieldReader fields(model, 0, model.size());
  int32_t id = -1;
  while (const auto field = fields.Next()) {
    if (field->number != kPieces) continue;
    ++id;
    std::string_view name;
    size_t type = 0;
    FieldReader parts(model, field->begin, field->end);
    while (const auto part = parts.Next()) {
      const size_t size = part->end - part->begin;
      if (part->number == kName) name = std::string_view(model).substr(part->begin, size);
      if (part->number == kType && size == 1) type = part->begin;
    }
    if (type > 0 && model[type] == kUserDefined && is_special(id, name)) model[type] = kControl;
  }
}

}  // namespace trimtab
