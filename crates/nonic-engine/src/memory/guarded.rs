//! Guarded copies, which survive memory that is not there.
//!
//! Every instruction that touches a region's memory stands in one piece of assembly, between two labels. If one of them
//! faults, the kernel sends SIGSEGV or SIGBUS to the thread; our handler sees that it stopped between the labels and
//! lets it go on at a third, from where the routine returns to its caller with "fault". Nothing is on the stack there,
//! so nothing has to be undone. This costs nothing until something faults.
//!
//! Bytes that were copied before the one that faulted stay copied: hardware, which checks a packet's pages first, places
//! whole packets or nothing. The peer learns of a failure in both cases and may rely on neither.
//!
//! Read first: [`copy`]. The handler and how it coexists with the program's are in [`super::fault_handler`].

use nonic_core::Fault;
use std::arch::global_asm;

/// From this length on, starting up a string move pays.
const STRING_MOVE_FROM: usize = 512;

/// What a routine returns, in two registers.
#[repr(C)]
struct Outcome {
    value: u64,
    /// Not zero: memory was not there, and `value` means nothing.
    fault: u64,
}

impl Outcome {
    fn value(self) -> Result<u64, Fault> {
        if self.fault == 0 {
            Ok(self.value)
        } else {
            Err(Fault)
        }
    }

    fn done(self) -> Result<(), Fault> {
        self.value().map(drop)
    }
}

unsafe extern "C" {
    /// Copies `head` bytes, then words, then what is left in bytes.
    fn nonic_guarded_words(to: *mut u8, from: *const u8, length: usize, head: usize) -> Outcome;
    /// Copies words and then bytes with string instructions.
    fn nonic_guarded_string(to: *mut u8, from: *const u8, words: usize, bytes: usize) -> Outcome;
    fn nonic_guarded_compare_swap(word: *mut u64, compare: u64, swap: u64) -> Outcome;
    fn nonic_guarded_fetch_add(word: *mut u64, add: u64) -> Outcome;
    fn nonic_guarded_store(word: *mut u64, value: u64) -> Outcome;
    // Labels, not functions.
    safe static nonic_guarded_begin: u8;
    safe static nonic_guarded_end: u8;
    safe static nonic_guarded_fault: u8;
}

// Arguments come in rdi, rsi, rdx, rcx; an outcome goes back in rax (value) and rdx (fault). Between `begin` and `end`
// the stack pointer stays where it was at the call. The compiler sees none of the loads and stores, so it can assume
// nothing about races with them. Each access to an aligned word is one instruction.
global_asm!(
    ".pushsection .text.nonic_guarded,\"ax\",@progbits",
    ".macro nonic_function name",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name,@function",
    ".p2align 4",
    "\\name:",
    ".cfi_startproc",
    ".endm",
    ".macro nonic_end name",
    ".cfi_endproc",
    ".size \\name,.-\\name",
    ".endm",
    ".macro nonic_label name",
    ".globl \\name",
    ".hidden \\name",
    "\\name:",
    ".endm",
    "nonic_label nonic_guarded_begin",
    //
    "nonic_function nonic_guarded_words",
    "test rcx, rcx",
    "jnz 6f",
    // Four words at a time.
    "2:",
    "sub rdx, 32",
    "jb 4f",
    "3:",
    "mov rax, qword ptr [rsi]",
    "mov r8, qword ptr [rsi + 8]",
    "mov r9, qword ptr [rsi + 16]",
    "mov r10, qword ptr [rsi + 24]",
    "mov qword ptr [rdi], rax",
    "mov qword ptr [rdi + 8], r8",
    "mov qword ptr [rdi + 16], r9",
    "mov qword ptr [rdi + 24], r10",
    "add rsi, 32",
    "add rdi, 32",
    "sub rdx, 32",
    "jae 3b",
    // Then two and one: the lowest bits of what is left are those of the length.
    "4:",
    "test dl, 16",
    "jz 5f",
    "mov rax, qword ptr [rsi]",
    "mov r8, qword ptr [rsi + 8]",
    "mov qword ptr [rdi], rax",
    "mov qword ptr [rdi + 8], r8",
    "add rsi, 16",
    "add rdi, 16",
    "5:",
    "test dl, 8",
    "jz 7f",
    "mov rax, qword ptr [rsi]",
    "mov qword ptr [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "7:",
    "and edx, 7",
    "jnz 8f",
    "ret",
    // The last bytes.
    "8:",
    "movzx eax, byte ptr [rsi]",
    "mov byte ptr [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec edx",
    "jnz 8b",
    "ret",
    // The first bytes.
    "6:",
    "sub rdx, rcx",
    "9:",
    "movzx eax, byte ptr [rsi]",
    "mov byte ptr [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rcx",
    "jnz 9b",
    "jmp 2b",
    "nonic_end nonic_guarded_words",
    //
    "nonic_function nonic_guarded_string",
    // The ABI guarantees that the direction flag is clear.
    "mov rax, rcx",
    "mov rcx, rdx",
    "rep movsq",
    "mov rcx, rax",
    "rep movsb",
    "xor edx, edx",
    "ret",
    "nonic_end nonic_guarded_string",
    //
    "nonic_function nonic_guarded_compare_swap",
    "mov rax, rsi",
    "lock cmpxchg qword ptr [rdi], rdx",
    "xor edx, edx",
    "ret",
    "nonic_end nonic_guarded_compare_swap",
    //
    "nonic_function nonic_guarded_fetch_add",
    "mov rax, rsi",
    "lock xadd qword ptr [rdi], rax",
    "xor edx, edx",
    "ret",
    "nonic_end nonic_guarded_fetch_add",
    //
    "nonic_function nonic_guarded_store",
    "mov qword ptr [rdi], rsi",
    "xor edx, edx",
    "ret",
    "nonic_end nonic_guarded_store",
    //
    "nonic_label nonic_guarded_end",
    //
    "nonic_function nonic_guarded_fault",
    "mov edx, 1",
    "ret",
    "nonic_end nonic_guarded_fault",
    ".purgem nonic_function",
    ".purgem nonic_end",
    ".purgem nonic_label",
    ".popsection",
);

/// Where a thread goes on that faulted at `instruction`, if that is one of the routines'.
pub(super) fn landing(instruction: usize) -> Option<usize> {
    let address = |label: &u8| std::ptr::from_ref(label).addr();
    (address(&nonic_guarded_begin)..address(&nonic_guarded_end))
        .contains(&instruction)
        .then(|| address(&nonic_guarded_fault))
}

/// Copies from shared memory.
///
/// # Safety
///
/// The compiler knows of nothing in the `out.len()` bytes at `from`, which may be gone.
#[inline]
pub(super) unsafe fn read(from: *const u8, out: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise; `out` is ours.
    unsafe { copy(out.as_mut_ptr(), from, out.len(), from.addr()) }
}

/// Copies to shared memory.
///
/// # Safety
///
/// The compiler knows of nothing in the `data.len()` bytes at `to`, which may be gone.
#[inline]
pub(super) unsafe fn write(to: *mut u8, data: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise; `data` is ours.
    unsafe { copy(to, data.as_ptr(), data.len(), to.addr()) }
}

/// Copies; small pieces so that words are aligned on the side that is shared, which begins at `shared`.
///
/// # Safety
///
/// As for [`read()`] and [`write()`].
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, length: usize, shared: usize) -> Result<(), Fault> {
    if length >= STRING_MOVE_FROM {
        // Bytes where the processor is built for that; otherwise words, and what is left of the last one.
        let (words, bytes) = if moves_bytes_fast() {
            (0, length)
        } else {
            (length / 8, length % 8)
        };
        // SAFETY: the caller's promise.
        return unsafe { nonic_guarded_string(to, from, words, bytes) }.done();
    }
    let head = (shared.wrapping_neg() & 7).min(length);
    // SAFETY: the caller's promise.
    unsafe { nonic_guarded_words(to, from, length, head) }.done()
}

/// Stores `swap` if there is `compare`. Answers what there was.
///
/// # Safety
///
/// `word` is aligned, and the compiler knows of nothing there.
#[inline]
pub(super) unsafe fn compare_swap(word: *mut u64, compare: u64, swap: u64) -> Result<u64, Fault> {
    // SAFETY: the caller's promise.
    unsafe { nonic_guarded_compare_swap(word, compare, swap) }.value()
}

/// Adds. Answers what there was.
///
/// # Safety
///
/// As for [`compare_swap`].
#[inline]
pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Fault> {
    // SAFETY: the caller's promise.
    unsafe { nonic_guarded_fetch_add(word, add) }.value()
}

/// Stores after everything that was stored before, which is how this processor stores.
///
/// # Safety
///
/// As for [`compare_swap`].
#[inline]
pub(super) unsafe fn store_word(word: *mut u64, value: u64) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { nonic_guarded_store(word, value) }.done()
}

/// Whether the processor has "enhanced" byte string moves; those before 2012 and some emulators have not.
fn moves_bytes_fast() -> bool {
    std::arch::is_x86_feature_detected!("ermsb")
}

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;

    #[test]
    fn words_and_strings_copy_the_same_at_every_alignment() {
        let from: Vec<u8> = (0..700_u32).map(|i| (i * 7 + 1) as u8).collect();
        for length in (0..80).chain([511, 512, 513, 650]) {
            for offset in 0..16 {
                for head in 0..8.min(length + 1) {
                    let mut to = vec![0xee; 700];
                    // SAFETY: both vectors are longer than `offset + length`.
                    let copied = unsafe {
                        nonic_guarded_words(to.as_mut_ptr(), from.as_ptr().add(offset), length, head)
                    };
                    assert_eq!(copied.done(), Ok(()));
                    assert_eq!(to[..length], from[offset..offset + length]);
                    assert!(to[length..].iter().all(|byte| *byte == 0xee));
                }
                for (words, bytes) in [(0, length), (length / 8, length % 8)] {
                    let mut to = vec![0xee; 700];
                    // SAFETY: both vectors are longer than `offset + length`.
                    let copied = unsafe {
                        nonic_guarded_string(to.as_mut_ptr(), from.as_ptr().add(offset), words, bytes)
                    };
                    assert_eq!(copied.done(), Ok(()));
                    assert_eq!(to[..length], from[offset..offset + length]);
                    assert!(to[length..].iter().all(|byte| *byte == 0xee));
                }
            }
        }
    }

    #[test]
    fn the_routines_agree_with_those_without_assembly() {
        let data: Vec<u8> = (0..600_u32).map(|i| (i * 7 + 1) as u8).collect();
        for (offset, length) in
            (0..9).flat_map(|offset| [0, 1, 8, 100, 511, 512].map(|length| (offset, length)))
        {
            let (mut ours, mut theirs) = ([0_u64; 80], [0_u64; 80]);
            let (to, other) = (ours.as_mut_ptr().cast::<u8>(), theirs.as_mut_ptr().cast::<u8>());
            // SAFETY: the arrays are longer than `offset + length`.
            unsafe {
                assert_eq!(write(to.add(offset), &data[..length]), Ok(()));
                assert_eq!(words::write(other.add(offset), &data[..length]), Ok(()));
                let (mut back, mut other_back) = ([0; 600], [0; 600]);
                assert_eq!(read(to.add(offset), &mut back[..length]), Ok(()));
                assert_eq!(words::read(other.add(offset), &mut other_back[..length]), Ok(()));
                assert_eq!(back, other_back);
            }
            assert_eq!(ours, theirs);
        }
        let (mut ours, mut theirs) = (5_u64, 5_u64);
        let (one, other) = (&raw mut ours, &raw mut theirs);
        // SAFETY: both words are ours.
        unsafe {
            for (compare, swap) in [(5, u64::MAX), (5, 1)] {
                assert_eq!(
                    compare_swap(one, compare, swap),
                    words::compare_swap(other, compare, swap)
                );
            }
            for _ in 0..2 {
                assert_eq!(fetch_add(one, 3), words::fetch_add(other, 3));
            }
            assert_eq!(store_word(one, 9), words::store_word(other, 9));
            assert_eq!((*one, *other), (9, 9));
        }
    }

    /// The copy without a guard, as the compiler would place it.
    unsafe fn plain(to: *mut u8, data: &[u8]) -> Result<(), Fault> {
        if data.len() < STRING_MOVE_FROM {
            // SAFETY: the caller's promise.
            return unsafe { words::write(to, data) };
        }
        let (words, bytes) = if moves_bytes_fast() {
            (0, data.len())
        } else {
            (data.len() / 8, data.len() % 8)
        };
        // SAFETY: the caller's promise.
        unsafe {
            std::arch::asm!(
                "rep movsq",
                "mov rcx, {bytes}",
                "rep movsb",
                bytes = in(reg) bytes,
                inout("rcx") words => _,
                inout("rsi") data.as_ptr() => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
        Ok(())
    }

    /// `cargo test --release -p nonic-engine guarded -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn guarded_copies_cost_no_more_than_plain_ones() {
        use std::hint::black_box;
        use std::time::Instant;
        const ROUNDS: u32 = 200_000;
        type Copy = unsafe fn(*mut u8, &[u8]) -> Result<(), Fault>;
        let mut shared = vec![0_u64; 1024];
        let shared = shared.as_mut_ptr().cast::<u8>();
        let data = [7; 4096];
        for length in [8, 64, 256, 511, 512, 4096] {
            let mut best = [f64::MAX; 2];
            for _ in 0..20 {
                for (which, copy) in [plain as Copy, write as Copy].into_iter().enumerate() {
                    let started = Instant::now();
                    for _ in 0..ROUNDS {
                        // SAFETY: the vector is longer than the data and used nowhere else.
                        let copied =
                            unsafe { black_box(copy)(black_box(shared), &data[..black_box(length)]) };
                        assert_eq!(copied, Ok(()));
                    }
                    let each_ns = started.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
                    best[which] = best[which].min(each_ns);
                }
            }
            let [plain, guarded] = best;
            println!("{length:5} bytes: plain {plain:6.2} ns, guarded {guarded:6.2} ns");
        }
    }
}
