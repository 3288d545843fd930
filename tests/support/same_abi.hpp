// SPDX-License-Identifier: Apache-2.0
// Whether our declaration of a function, with void* and int, has the ABI of the library's own declaration. Include
// before imports.
#pragma once
#include <cstddef>
#include <type_traits>

/// Both are passed alike: pointers, numbers (including enums) of one size, or structures of one size.
template <class Ours, class Theirs>
inline constexpr bool same_value =
    (std::is_void_v<Ours> && std::is_void_v<Theirs>) || (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>);
template <class Ours, class Theirs>
  requires(std::is_integral_v<Ours> && (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>))
inline constexpr bool same_value<Ours, Theirs> = sizeof(Ours) == sizeof(Theirs);
template <class Ours, class Theirs>
  requires(std::is_class_v<Ours> && std::is_class_v<Theirs>)
inline constexpr bool same_value<Ours, Theirs> =
    sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) && std::is_trivially_copyable_v<Ours> &&
    std::is_trivially_copyable_v<Theirs>;

template <class Ours, class Theirs>
inline constexpr bool same_abi = false;
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
inline constexpr bool same_abi<OurResult (*)(Ours...), TheirResult (*)(Theirs...)> =
    same_value<OurResult, TheirResult> && (same_value<Ours, Theirs> && ...);
