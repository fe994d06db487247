#include "base/event.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace gradwire {
namespace {

TEST(Event, WakesAllWaiters) {
  for (int round = 0; round < 200; ++round) {
    Event event;
    std::vector<std::thread> waiters;
    for (int i = 0; i < 4; ++i) waiters.emplace_back([&] { EXPECT_TRUE(event.Wait()); });
    event.Set();
    for (auto& waiter : waiters) waiter.join();
  }
}

TEST(Event, AWaitEndsAtItsLimit) {
  Event event;
  EXPECT_FALSE(event.Wait(std::chrono::milliseconds(5)));
  event.Set();
  event.Set();
  EXPECT_TRUE(event.Wait(std::chrono::milliseconds(0)));
}

TEST(Event, MayBeDestroyedByTheWaiterThatItWakes) {
  for (int round = 0; round < 2000; ++round) {
    auto event = std::make_unique<Event>();
    Event* const raw = event.get();
    std::thread waiter([event = std::move(event)] { event->Wait(); });
    raw->Set();
    waiter.join();
  }
}

TEST(Event, WhatWasWrittenBeforeSetIsSeenAfterWait) {
  for (int round = 0; round < 2000; ++round) {
    Event event;
    int value = 0;
    std::thread setter([&] {
      value = round;
      event.Set();
    });
    event.Wait();
    EXPECT_EQ(value, round);
    setter.join();
  }
}

}  // namespace
}  // namespace gradwire
