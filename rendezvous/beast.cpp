// The one place where Beast's own code is compiled (see cmake/dependencies.cmake).
#include <boost/beast/src.hpp>
