// The owner's rules as explorations build them: the mistake of the present one switches one off.
#pragma once

#include "rref_explore.h"

namespace gradwire::sim {

// Stands for rref::OwnerRules. One exploration runs at a time.
struct Rules {
  static inline Mistake planted = Mistake::kNone;

  // A rule that holds unless its mistake is planted.
  struct Rule {
    Mistake mistake;
    operator bool() const { return planted != mistake; }
  };

  static constexpr Rule kRememberEarlyDrops{Mistake::kNoTombstone};
  static constexpr Rule kForgetWhatIsGone{Mistake::kTombstoneAfterFree};
  static constexpr Rule kFetchWaitsForCreation{Mistake::kFetchBeforeCreate};
  static constexpr Rule kFetchKeepsTheValue{Mistake::kFetchKeepsNothing};
  static constexpr Rule kConfirmWaitsForAdd{Mistake::kConfirmAtOnce};

  static constexpr Rule kForgetForksOfTheLost{Mistake::kForksOfTheLostStay};
  static constexpr Rule kDoubtWhatTheLostHeld{Mistake::kNoDoubt};
  static constexpr Rule kDoubtLateForks{Mistake::kNoLateDoubt};
  static constexpr Rule kRefuseForksForTheLost{Mistake::kForksForTheLost};
  static constexpr Rule kForgetDropsAwaitingTheLost{Mistake::kTombstonesForTheLost};
  static constexpr Rule kDropsMeetAnswers{Mistake::kDropsMissAnswers};
  static constexpr Rule kDoubtWhoHasNotAnswered{Mistake::kNoDoubtBySilence};
  static constexpr Rule kAwaitAllAnswers{Mistake::kFirstAnswerEnds};
  static constexpr Rule kAwaitAllRounds{Mistake::kFirstRoundEnds};
  static constexpr Rule kAskAboutEarlierLosses{Mistake::kAsksAboutTheLast};
  static constexpr Rule kAnswersReplace{Mistake::kAnswersOnlyAdd};
};

}  // namespace gradwire::sim
