#include "worker/gather_parts.h"

#include "gradwire/error.h"

namespace gradwire {
namespace {

using Names = std::vector<std::pair<std::string, uint64_t>>;  // with the worker's packed id

}  // namespace

// A part keeps its own tables when it travels among others: (name, bytes, tensors, references).
void PutGatherPart(ValueWriter& writer, const std::string& name, const Payload& part) {
  writer.BeginTuple(4);
  writer.PutString(name);
  writer.PutBytes(part.bytes);
  writer.BeginList(part.tensors.size());
  for (const at::Tensor& tensor : part.tensors) writer.PutTensor(tensor);
  writer.BeginList(part.references.size());
  for (const auto& reference : part.references) writer.PutReference(reference);
}

std::pair<std::string, Payload> GetGatherPart(ValueReader& reader) {
  Payload part;
  if (reader.BeginTuple() != 4) throw Error(ErrorCode::kInvalid, "a part of a gathering is malformed");
  std::string name(reader.GetString());
  part.bytes = reader.GetBytes();
  for (size_t count = reader.BeginList(); count > 0; --count) part.tensors.push_back(reader.GetTensor());
  reader.End();
  for (size_t count = reader.BeginList(); count > 0; --count) part.references.push_back(reader.GetReference());
  reader.End();
  reader.End();
  return {std::move(name), std::move(part)};
}

Payload EncodeGatherParts(const GatherParts& parts) {
  Payload payload;
  ValueWriter writer(payload);
  writer.BeginList(parts.size());
  for (const auto& [name, part] : parts) PutGatherPart(writer, name, part);
  return payload;
}

GatherParts DecodeGatherParts(const Payload& payload) {
  GatherParts parts;
  ValueReader reader(payload);
  for (size_t count = reader.BeginList(); count > 0; --count) parts.insert(GetGatherPart(reader));
  reader.End();
  return parts;
}

void PutGatherKey(ValueWriter& writer, const GatherKey& key) {
  Names names;
  for (const auto& [name, id] : key.first) names.emplace_back(name, id.packed());
  Codec<Names>::Write(writer, names);
  writer.PutInt(key.second);
}

GatherKey GetGatherKey(ValueReader& reader) {
  GatherKey key;
  for (auto& [name, id] : Codec<Names>::Read(reader)) key.first.emplace_back(name, WorkerId::FromPacked(id));
  key.second = reader.GetInt();
  return key;
}

}  // namespace gradwire
