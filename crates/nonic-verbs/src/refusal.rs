//! Refusals: the one place where a refused call becomes what C programs see of it, and a line of the log.
//!
//! The code that refuses says which argument is at fault and what to do ([`nonic_abi::errno::refused`]); the exported
//! function hands that to [`ANSWER`] together with its name. `tests/refusals.rs` finds exported functions that do
//! otherwise.

use libc::{c_char, c_int, size_t};
use nonic_abi::errno::{self, Answers};
use nonic_engine::log;

/// How this library answers.
pub(crate) const ANSWER: Answers = Answers(tell);

fn tell(call: &str, number: c_int, what: &str, next: &str) {
    log::refused_call(call, &errno::name(number), what, next);
}

/// For `librdmacm.so.1`, which has no log of its own: tells of a refusal. The texts are UTF-8.
///
/// # Safety
///
/// Each pointer is good for the length behind it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_tell_refusal(
    call: *const c_char,
    call_len: size_t,
    number: c_int,
    what: *const c_char,
    what_len: size_t,
    next: *const c_char,
    next_len: size_t,
) {
    // SAFETY: the caller's promise.
    let text = |start: *const c_char, len| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) };
    let [call, what, next] = [text(call, call_len), text(what, what_len), text(next, next_len)];
    tell(
        &String::from_utf8_lossy(call),
        number,
        &String::from_utf8_lossy(what),
        &String::from_utf8_lossy(next),
    );
}
