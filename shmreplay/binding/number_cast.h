// Casts of numbers from one NumPy dtype to another, with NumPy's own results.
//
// One rule is ours: a number that the column's dtype cannot hold is not stored as another one. NumPy stores a finite
// number beyond a float's range as infinity, and an integer beyond an integer's range as what is left of its bits. Here
// such a number ends the cast; Python's column_array() refuses it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "python.h"

namespace shmreplay {

// Casts n numbers, which may lie at any address. false: one of them does not fit; the others may be written.
using NumberCast = bool (*)(const char* from, char* to, size_t n);
inline constexpr size_t kCastTypes = 24;  // NumPy's own type numbers, from bool to float16
// By the type number of the source; nullptr: Python decides.
using NumberCasts = std::array<NumberCast, kCastTypes>;

namespace casts {

struct Bool { uint8_t byte; };
struct Half { uint16_t bits; };
template <class T>
struct Complex {
  T real, imag;
};

template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<Complex<T>> = true;
template <class T>
inline constexpr bool is_float = std::is_floating_point_v<T> || std::is_same_v<T, Half>;
template <class T>
inline constexpr bool is_int = std::is_integral_v<T>;

// NumPy casts to the same kind of number or to a later one.
template <class T>
inline constexpr int kind = std::is_same_v<T, Bool> ? 0
                            : is_int<T>             ? (std::is_unsigned_v<T> ? 1 : 2)
                            : is_float<T>           ? 3
                                                    : 4;

inline float as_float(Half value) noexcept {
  const uint32_t sign = uint32_t{value.bits} << 16 & 0x80000000u, fraction = value.bits & 0x3FFu;
  const uint32_t exponent = value.bits >> 10 & 0x1Fu;
  if (exponent == 0) {
    const float small = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? small : -small;
  }
  const uint32_t bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Rounds to the nearest, to the even one of two.
inline Half as_half(double value) noexcept {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto sign = static_cast<uint16_t>(bits >> 48 & 0x8000u);
  const double size = std::fabs(value);
  if (std::isnan(value)) {
    const auto payload = static_cast<uint16_t>(bits >> 42 & 0x3FFu);
    return {static_cast<uint16_t>(sign | 0x7C00u | (payload == 0 ? 1 : payload))};
  }
  if (size >= 65520.0) return {static_cast<uint16_t>(sign | 0x7C00u)};
  const int exponent = std::max(static_cast<int>(bits >> 52 & 0x7FFu) - 1023, -14);
  const uint64_t scale_bits = static_cast<uint64_t>(1023 + 10 - exponent) << 52;
  double scale;
  std::memcpy(&scale, &scale_bits, sizeof scale);
  const double steps = (size * scale + 0x1p52) - 0x1p52;  // adding 2^52 rounds to a whole number
  return {static_cast<uint16_t>(sign | (((exponent + 14) << 10) + static_cast<int>(steps)))};
}

template <class To, class From>
To real_as(From value) noexcept {
  if constexpr (std::is_same_v<From, Bool>) return real_as<To>(static_cast<uint8_t>(value.byte != 0));
  else if constexpr (std::is_same_v<To, From>) return value;
  else if constexpr (std::is_same_v<From, Half>) return static_cast<To>(as_float(value));
  else if constexpr (!std::is_same_v<To, Half>) return static_cast<To>(value);
  else if constexpr (is_int<From>) return as_half(static_cast<double>(static_cast<float>(value)));  // as NumPy does
  else return as_half(static_cast<double>(value));
}

inline bool is_finite(Half value) noexcept { return (value.bits & 0x7C00u) != 0x7C00u; }
template <class T>
bool is_finite(T value) noexcept {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(value) <= std::numeric_limits<T>::max();
  else return true;
}

// Whether some number of the one type is beyond the other's range.
template <class From, class To>
constexpr bool narrows() {
  if constexpr (std::is_same_v<From, Bool> || std::is_same_v<From, To>) return false;
  else if constexpr (is_int<From> && is_int<To>)
    return !std::in_range<To>(std::numeric_limits<From>::max()) || !std::in_range<To>(std::numeric_limits<From>::min());
  else if constexpr (is_int<From>) return std::is_same_v<To, Half> && sizeof(From) > 1;
  else if constexpr (std::is_same_v<From, Half>) return false;
  else return std::is_same_v<To, Half> || sizeof(To) < sizeof(From);
}

template <class From, class To>
bool fits(From value, To cast) noexcept {
  if constexpr (!narrows<From, To>()) return true;
  else if constexpr (is_int<To>) return std::in_range<To>(value);
  else return static_cast<bool>(static_cast<int>(is_finite(cast)) | static_cast<int>(!is_finite(value)));
}

template <class From, class To>
bool cast_numbers(const char* from, char* to, size_t n) {
  bool all_fit = true;
  for (size_t i = 0; i < n; ++i) {
    From value;
    To cast;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    if constexpr (is_complex<From>) {
      cast.real = real_as<decltype(cast.real)>(value.real);
      cast.imag = real_as<decltype(cast.imag)>(value.imag);
      all_fit &= fits(value.real, cast.real) & fits(value.imag, cast.imag);
    } else if constexpr (is_complex<To>) {
      cast.real = real_as<decltype(cast.real)>(value);
      cast.imag = 0;
      all_fit &= fits(value, cast.real);
    } else {
      cast = real_as<To>(value);
      all_fit &= fits(value, cast);
    }
    std::memcpy(to + i * sizeof(To), &cast, sizeof(To));
  }
  return all_fit;
}

template <class T>
bool copy_numbers(const char* from, char* to, size_t n) {
  std::memcpy(to, from, n * sizeof(T));
  return true;
}

// Calls use(T{}) with the type of that number. Answers what it answers; nullptr for types that are not handled here.
template <class Use>
NumberCast with_type(int type_num, Use use) {
  switch (type_num) {
    case NPY_BOOL: return use(Bool{});
    case NPY_BYTE: return use(npy_byte{});
    case NPY_UBYTE: return use(npy_ubyte{});
    case NPY_SHORT: return use(npy_short{});
    case NPY_USHORT: return use(npy_ushort{});
    case NPY_INT: return use(npy_int{});
    case NPY_UINT: return use(npy_uint{});
    case NPY_LONG: return use(npy_long{});
    case NPY_ULONG: return use(npy_ulong{});
    case NPY_LONGLONG: return use(npy_longlong{});
    case NPY_ULONGLONG: return use(npy_ulonglong{});
    case NPY_HALF: return use(Half{});
    case NPY_FLOAT: return use(float{});
    case NPY_DOUBLE: return use(double{});
    case NPY_CFLOAT: return use(Complex<float>{});
    case NPY_CDOUBLE: return use(Complex<double>{});
    default: return nullptr;
  }
}

inline NumberCast find(int from, int to) {
  return with_type(from, [to](auto source) {
    return with_type(to, [](auto target) -> NumberCast {
      using From = decltype(source);
      using To = decltype(target);
      if constexpr (std::is_same_v<From, To>) return copy_numbers<To>;
      else if constexpr (kind<From> > kind<To> || kind<To> == 0) return nullptr;
      else return cast_numbers<From, To>;
    });
  });
}

}  // namespace casts

// The casts to the column's dtype that NumPy allows under the rule.
inline NumberCasts casts_to(PyArray_Descr* to, NPY_CASTING rule) {
  NumberCasts found{};
  for (int from = 0; from < static_cast<int>(kCastTypes) && to->type_num < NPY_USERDEF; ++from) {
    const NumberCast cast = casts::find(from, to->type_num);
    if (cast == nullptr) continue;
    PyArray_Descr* descr = PyArray_DescrFromType(from);
    if (PyArray_CanCastTypeTo(descr, to, rule)) found[static_cast<size_t>(from)] = cast;
    Py_DECREF(reinterpret_cast<PyObject*>(descr));
  }
  return found;
}

// The type number of a NumPy scalar of exactly that type; -1 for anything else.
inline int scalar_type_num(const PyTypeObject* type) {
  struct Scalar {
    const PyTypeObject* type;
    int type_num;
  };
  static const std::array<Scalar, 16> scalars = {{
      {&PyDoubleArrType_Type, NPY_DOUBLE},
      {&PyFloatArrType_Type, NPY_FLOAT},
      {&PyBoolArrType_Type, NPY_BOOL},
      {&PyLongArrType_Type, NPY_LONG},
      {&PyIntArrType_Type, NPY_INT},
      {&PyUByteArrType_Type, NPY_UBYTE},
      {&PyHalfArrType_Type, NPY_HALF},
      {&PyByteArrType_Type, NPY_BYTE},
      {&PyShortArrType_Type, NPY_SHORT},
      {&PyUShortArrType_Type, NPY_USHORT},
      {&PyUIntArrType_Type, NPY_UINT},
      {&PyULongArrType_Type, NPY_ULONG},
      {&PyLongLongArrType_Type, NPY_LONGLONG},
      {&PyULongLongArrType_Type, NPY_ULONGLONG},
      {&PyCFloatArrType_Type, NPY_CFLOAT},
      {&PyCDoubleArrType_Type, NPY_CDOUBLE},
  }};
  for (const Scalar& scalar : scalars) {
    if (scalar.type == type) return scalar.type_num;
  }
  return -1;
}

}  // namespace shmreplay
