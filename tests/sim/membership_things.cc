#include <utility>

#include "membership_world.h"

namespace gradwire::sim {
namespace {

template <class... Numbers>
std::string KeyOf(Numbers... numbers) {
  std::string key;
  ((key.append(reinterpret_cast<const char*>(&numbers), sizeof numbers)), ...);
  return key;
}

}  // namespace

rpc::MembershipRules RulesWith(MembershipMistake mistake) {
  rpc::MembershipRules rules;
  switch (mistake) {
    case MembershipMistake::kNoQuorum: rules.needs_quorum = false; break;
    case MembershipMistake::kTieToBoth: rules.tie_to_senior = false; break;
    case MembershipMistake::kDeadCount: rules.gone_do_not_count = false; break;
    case MembershipMistake::kLivingHalf: rules.counts_the_view = false; break;
    case MembershipMistake::kStuckCounts: rules.stuck_as_gone = false; break;
    case MembershipMistake::kDarkIsStuck: rules.dark_is_not_stuck = false; break;
    case MembershipMistake::kNoPromise: rules.promises = false; break;
    case MembershipMistake::kNoAccept: rules.asks_acceptance = false; break;
    case MembershipMistake::kEnoughAccept: rules.awaits_acceptances = false; break;
    case MembershipMistake::kNoInherit: rules.inherits = false; break;
    case MembershipMistake::kNoIndirect: rules.counts_reached = false; break;
    case MembershipMistake::kBreakIsLoss: rules.break_is_suspicion = false; break;
    case MembershipMistake::kStaleRound: rules.sleep_ends_round = false; break;
    case MembershipMistake::kNoDoubt: rules.doubts_itself = false; break;
    case MembershipMistake::kSilentFence: rules.tells_the_lost = false; break;
    case MembershipMistake::kAnyEpoch: rules.newer_views_only = false; break;
    case MembershipMistake::kRefuseByAnyone: rules.checks_refusals = false; break;
    case MembershipMistake::kJoinOver: rules.one_rank_one_worker = false; break;
    default: break;
  }
  return rules;
}

WorldThings::WorldThings(const MembershipScenario& scenario, MembershipMistake mistake)
    : scenario(scenario), mistake(mistake), n(scenario.workers + scenario.joins) {
  for (int i = 0; i < n; ++i) {
    const bool wants_rank = i >= scenario.workers && scenario.clash >= 0;
    ids_.push_back({static_cast<uint32_t>(wants_rank ? scenario.clash : i), wants_rank ? 2u : 1u});
  }
}

Mask WorldThings::MaskOf(const WorkerSet& workers) const {
  Mask mask = 0;
  for (const WorkerId& worker : workers) mask |= Bit(IndexOf(worker));
  return mask;
}

WorkerSet WorldThings::SetOf(Mask mask) const {
  WorkerSet workers;
  Each(mask, [&](int x) { workers.insert(ids_[x]); });
  return workers;
}

int WorldThings::IndexOf(WorkerId worker) const {
  for (int i = 0; i < n; ++i) {
    if (ids_[i] == worker) return i;
  }
  throw std::logic_error("no such worker");
}

uint32_t WorldThings::NumberOf(rpc::Membership table) {
  return tables_(table.Key(), [&] {
    const bool in = table.standing() == rpc::Membership::Standing::kIn;
    const auto target = table.Target();
    return TableFacts{.table = table,
                      .out = table.ended(),
                      .in = in,
                      .acts = table.Acts(),
                      .stands_alone = table.StandsAlone(),
                      .wants_to_judge = table.WantsToJudge(),
                      .target = target ? IndexOf(*target) : -1,
                      .members = MaskOf(table.members()),
                      .suspects = MaskOf(table.suspects()),
                      .gone = MaskOf(table.gone()),
                      .parted = MaskOf(table.parted()),
                      .reported = MaskOf(table.reported()),
                      .removed = MaskOf(table.removed()),
                      .pending = MaskOf(table.Pending())};
  });
}

uint32_t WorldThings::NumberOf(const WorldMessage& message) {
  std::string key = KeyOf(message.kind, message.epoch, message.worker);
  if (message.kind == WorldMessage::Kind::kGroup) key += wire::Encode(message.group);
  return messages_(std::move(key), [&] {
    WorldMessage kept = message;
    // As it travels: what the codec changed would be seen.
    if (kept.kind == WorldMessage::Kind::kGroup) kept.group = wire::DecodeGroupMessage(wire::Encode(message.group));
    return kept;
  });
}

uint32_t WorldThings::NumberOf(const std::vector<uint32_t>& channel) {
  std::string key(reinterpret_cast<const char*>(channel.data()), channel.size() * sizeof(uint32_t));
  return channels_(std::move(key), [&] { return channel; });
}

const WorldThings::After& WorldThings::Step(uint32_t table, Event event, int worker, uint32_t message, Mask reached,
                                            Mask gone) {
  std::string key = KeyOf(table, event, worker, message, reached, gone);
  const auto known = steps_.find(key);
  if (known != steps_.end()) return known->second;
  After after = StepTable(tables_[table].table, event, worker, message, reached, gone);
  return steps_.emplace(std::move(key), std::move(after)).first->second;
}

WorldThings::After WorldThings::StepTable(rpc::Membership table, Event event, int worker, uint32_t message,
                                          Mask reached, Mask gone) {
  const WorkerId x = ids_[worker];
  rpc::Membership::Actions actions;
  switch (event) {
    case Event::kBroken: actions = table.OnBroken(x); break;
    case Event::kDark: actions = table.OnDark(x); break;
    case Event::kGone: actions = table.OnGone(x); break;
    case Event::kHeard: actions = table.OnHeard(x); break;
    case Event::kMet: actions = table.OnMet(x); break;
    case Event::kPathLost: actions = table.OnPathLost(x); break;
    case Event::kStuck: actions = table.OnStuck(x); break;
    case Event::kMissed: actions = table.OnMissed(x); break;
    case Event::kSettled: actions = table.OnSettled(x); break;
    case Event::kRecheck: actions = table.OnRecheck(x); break;
    case Event::kSlept: actions = table.OnSlept(); break;
    case Event::kAnswered: actions = table.OnAnswered(x); break;
    case Event::kJudge: actions = table.OnJudge(); break;
    case Event::kRefused: actions = table.OnRefused(x, messages_[message].epoch); break;
    case Event::kLeave: actions = table.Leave(); break;
    case Event::kMessage:
      actions = table.OnMessage(x, messages_[message].group, SetOf(reached), SetOf(gone));
      break;
  }
  After after;
  for (const auto& action : actions) {
    if (const auto* send = std::get_if<rpc::Membership::Send>(&action)) {
      const uint32_t number = NumberOf(WorldMessage{.kind = WorldMessage::Kind::kGroup, .group = send->message});
      after.actions.push_back({.kind = Action::Kind::kSend, .worker = IndexOf(send->to), .message = number});
    } else if (const auto* end = std::get_if<rpc::Membership::EndSession>(&action)) {
      after.actions.push_back({.kind = Action::Kind::kEndSession, .worker = IndexOf(end->worker)});
    } else if (const auto* decided = std::get_if<rpc::Membership::Decided>(&action)) {
      after.actions.push_back({.kind = Action::Kind::kDecided, .lost = MaskOf(decided->lost)});
    } else if (const auto* ended = std::get_if<rpc::Membership::Ended>(&action)) {
      after.actions.push_back({.kind = Action::Kind::kEnded, .why = ended->why});
    }
  }
  after.table = NumberOf(std::move(table));
  return after;
}

}  // namespace gradwire::sim
