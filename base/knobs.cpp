#include "base/knobs.h"
