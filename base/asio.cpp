// The one place where Asio's own code is compiled (see cmake/dependencies.cmake).
#include <boost/asio/impl/src.hpp>
