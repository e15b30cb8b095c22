//! The handler of SIGSEGV and SIGBUS, and how it coexists with the program's.
//!
//! A fault at one of [`super::guarded`]'s instructions lets the thread go on where the routine answers "fault".
//! Everything else is passed on to the handler that was found when ours was installed, with the mask it asked for; and
//! where there was none, the process ends as it would have without us.
//!
//! Programs (and Python's faulthandler, Java, sanitizers) install handlers when they like, so [`ensure_installed`] runs
//! with every region that is made and puts ours in front again. A handler that was installed after ours may pass on to ours
//! a fault that is not its own. It must not get that fault back: ours then calls the handler that was there before both.
//!
//! The handler touches only statics, and calls only what is allowed in a handler.

use super::guarded;
use libc::{c_int, c_void, sigaction, siginfo_t, sigset_t, ucontext_t};
use std::arch::global_asm;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What was found for one signal.
struct Found {
    signal: c_int,
    /// When ours was last installed. Actions are never freed: a handler may be reading one.
    last: AtomicPtr<sigaction>,
    /// When it was installed for the first time.
    first: AtomicPtr<sigaction>,
}

impl Found {
    const fn new(signal: c_int) -> Self {
        Found {
            signal,
            last: AtomicPtr::new(std::ptr::null_mut()),
            first: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

/// The signals that an access to memory can cause.
static FOUND: [Found; 2] = [Found::new(libc::SIGSEGV), Found::new(libc::SIGBUS)];

unsafe extern "C" {
    /// What the kernel calls.
    fn nonic_fault_handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void);
}

// The kernel puts the context right above the return address of the handler that it calls. Another handler that calls this
// one has its own return address there. So the fourth argument tells the kernel from another handler as the caller, even if
// a handler was left by `longjmp` before, which a count would not survive.
global_asm!(
    ".pushsection .text.nonic_fault_handler,\"ax\",@progbits",
    ".globl nonic_fault_handler",
    ".hidden nonic_fault_handler",
    ".type nonic_fault_handler,@function",
    "nonic_fault_handler:",
    ".cfi_startproc",
    "lea rcx, [rsp + 8]",
    "jmp {handle}",
    ".cfi_endproc",
    ".size nonic_fault_handler,.-nonic_fault_handler",
    ".popsection",
    handle = sym handle,
);

/// Sees to it that our handler is the one the kernel calls.
pub(super) fn ensure_installed() {
    for found in &FOUND {
        let now = query(found.signal);
        if is_ours(&now) {
            continue;
        }
        // Known before ours is there to need it.
        found.remember(&now);
        let replaced = install(found.signal);
        // Another thread of the program's, or of ours, may have been quicker.
        if !is_ours(&replaced) && !same(&replaced, &now) {
            found.remember(&replaced);
        }
    }
}

impl Found {
    fn remember(&self, action: &sigaction) {
        // SAFETY: an action that was stored is never freed.
        if unsafe { self.last.load(Ordering::Acquire).as_ref() }.is_some_and(|last| same(last, action)) {
            return;
        }
        let kept = Box::into_raw(Box::new(*action));
        // It stays what it is once it is set.
        let _ = self
            .first
            .compare_exchange(std::ptr::null_mut(), kept, Ordering::AcqRel, Ordering::Acquire);
        self.last.store(kept, Ordering::Release);
    }
}

fn query(signal: c_int) -> sigaction {
    let mut now = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: only asks; the answer goes into our own structure, of which all zeros is a value.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    }
}

/// Answers what was replaced.
fn install(signal: c_int) -> sigaction {
    let mut replaced = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: all zeros is an action with an empty mask.
    let mut ours: sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = our_address();
    // On the other stack if the thread has one: what is passed on may be that the first one is full. Not deferred: the
    // handler that it is passed on to may have asked for that.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: both structures are ours, and the handler does what a handler may.
    unsafe {
        libc::sigaction(signal, &raw const ours, replaced.as_mut_ptr());
        replaced.assume_init()
    }
}

fn our_address() -> usize {
    nonic_fault_handler as *const () as usize
}

fn is_ours(action: &sigaction) -> bool {
    action.sa_sigaction == our_address()
}

fn same(one: &sigaction, other: &sigaction) -> bool {
    one.sa_sigaction == other.sa_sigaction && one.sa_flags == other.sa_flags
}

/// What happens when the signal comes. `delivered` is where the context is if the kernel calls.
///
/// # Safety
///
/// The arguments are what the kernel passes to a handler.
unsafe extern "C" fn handle(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
    delivered: *mut c_void,
) {
    // SAFETY: the kernel's, and used by no other code until the handler returns.
    let (caused, instruction) = unsafe {
        // Zero and below: sent by a process.
        let caused = (*info).si_code > 0;
        let registers = &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        (caused, &mut registers[libc::REG_RIP as usize])
    };
    if caused {
        if let Some(landing) = guarded::landing(*instruction as usize) {
            *instruction = landing as i64;
            return;
        }
    }
    let found = if signal == libc::SIGSEGV {
        &FOUND[0]
    } else {
        &FOUND[1]
    };
    let next = if context == delivered {
        &found.last
    } else {
        &found.first
    };
    // SAFETY: set before ours was installed, and never freed.
    let next = unsafe { next.load(Ordering::Acquire).as_ref() };
    match next {
        // SAFETY: the arguments are the kernel's.
        Some(next) if !matches!(next.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) => unsafe {
            pass_on(next, signal, info, context);
        },
        // What was sent may be ignored; what an instruction caused may not, it would happen again and again.
        Some(next) if next.sa_sigaction == libc::SIG_IGN && !caused => {}
        _ => end_by(signal, caused),
    }
}

/// Calls a handler as the kernel would have.
///
/// # Safety
///
/// The action has a handler; the other arguments are the kernel's.
unsafe fn pass_on(next: &sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if next.sa_flags & libc::SA_RESETHAND != 0 {
        // It wants to be called once. What the kernel calls from here on is the default, ours no longer either.
        set_default(signal);
    }
    let mut mask: sigset_t = next.sa_mask;
    // SAFETY: the mask is ours. The kernel restores the thread's when the handler returns.
    unsafe {
        if next.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, std::ptr::null_mut());
    }
    if next.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
        // SAFETY: the program said that there is a function of this type.
        unsafe {
            let handler: Handler = std::mem::transmute(next.sa_sigaction);
            handler(signal, info, context);
        }
    } else {
        // SAFETY: the program said that there is a function of this type.
        unsafe {
            let handler: unsafe extern "C" fn(c_int) = std::mem::transmute(next.sa_sigaction);
            handler(signal);
        }
    }
}

/// Ends the process as the signal does by default.
fn end_by(signal: c_int, caused: bool) {
    set_default(signal);
    if !caused {
        // The instruction would not fault again by itself.
        // SAFETY: any signal may be raised.
        unsafe { libc::raise(signal) };
    }
}

fn set_default(signal: c_int) {
    // SAFETY: all zeros is the default action.
    let default: sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours.
    unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
}
