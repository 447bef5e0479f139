// hvd's library takes strings and containers of the standard library, so a program has to give them
// the same layout. The C API has neither and works with any.
#pragma once

#if defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
#error "hvd: _GLIBCXX_USE_CXX11_ABI=0 changes std::string; compile without it, or use hvd/c_api.h"
#endif

// _GLIBCXX_ASSERTIONS leaves the layout as it is.
#ifdef _GLIBCXX_DEBUG
#error "hvd: _GLIBCXX_DEBUG changes std::vector; compile without it, or use hvd/c_api.h"
#endif
