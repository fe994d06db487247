// GRADWIRE_API marks what libgradwire.so exports; everything else is hidden.
#pragma once

#define GRADWIRE_API __attribute__((visibility("default")))
