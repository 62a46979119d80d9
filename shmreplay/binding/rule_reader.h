// Reads rules, as Python's windows compile them, into the core's.
#pragma once

#include "python.h"
#include "step_plan.h"
#include "write/item_rules.h"

namespace shmreplay {

inline NumberFormat number_format(const PlanColumn& column) {
  if (column.is_opaque) return {'V', 0};
  const auto* descr = reinterpret_cast<const PyArray_Descr*>(column.descr.ptr());
  return {descr->kind, static_cast<uint32_t>(PyDataType_ELSIZE(descr))};
}

// `d` has:
// - "table", "lo", "hi", "period", "at_start", "at_end", "reach", "is_strict", "is_unroll", "names": as in ItemRule
// - "outputs": [(column, squeezed, moves, [(begin, end, step), ...]), ...]
// - "conditions": [(kind, compare, modulo, value, column), ...]
// - "priority": (kind, value, column, whether only from the reference step on)
inline ItemRule read_rule(nb::dict d) {
  ItemRule rule;
  rule.table = nb::cast<uint32_t>(d["table"]);
  rule.lo = nb::cast<int32_t>(d["lo"]);
  rule.hi = nb::cast<int32_t>(d["hi"]);
  rule.period = nb::cast<uint32_t>(d["period"]);
  rule.at_start = static_cast<AtStart>(nb::cast<uint32_t>(d["at_start"]));
  rule.at_end = static_cast<AtEnd>(nb::cast<uint32_t>(d["at_end"]));
  rule.reach = static_cast<Reach>(nb::cast<uint32_t>(d["reach"]));
  rule.is_strict = nb::cast<bool>(d["is_strict"]);
  rule.is_unroll = nb::cast<bool>(d["is_unroll"]);
  const auto names = nb::cast<nb::bytes>(d["names"]);
  rule.names.assign(names.c_str(), names.size());
  const nb::object outputs = d["outputs"], conditions = d["conditions"], priority = d["priority"];
  for (nb::handle o : outputs) {
    RuleOutput output{nb::cast<uint16_t>(o[0]), nb::cast<bool>(o[1]), nb::cast<bool>(o[2]), {}};
    const nb::object slices = o[3];
    for (nb::handle s : slices)
      output.slices.push_back({nb::cast<int32_t>(s[0]), nb::cast<int32_t>(s[1]), nb::cast<int32_t>(s[2])});
    rule.outputs.push_back(std::move(output));
  }
  for (nb::handle c : conditions) {
    rule.conditions.push_back({static_cast<ConditionKind>(nb::cast<uint32_t>(c[0])),
                               static_cast<Compare>(nb::cast<uint32_t>(c[1])), nb::cast<uint64_t>(c[2]),
                               nb::cast<double>(c[3]), nb::cast<uint16_t>(c[4])});
  }
  rule.priority = {static_cast<PriorityKind>(nb::cast<uint32_t>(priority[0])), nb::cast<double>(priority[1]),
                   nb::cast<uint16_t>(priority[2]), nb::cast<bool>(priority[3])};
  return rule;
}

}  // namespace shmreplay
