//! `errno`, and how functions of C libraries report errors.
//!
//! Inside the libraries an error is an [`Errno`] in a `Result`: a number together with the argument that is at fault
//! and what to do about it. Only [`refused`], [`of_io`] and [`of_system`] make one of a number, and only [`Answers`]
//! turns one into what the man page of a function promises. So every refusal passes [`Answers`], which logs it
//! (`NONIC_LOG`). Two kinds are not logged, and say so where they are made: what belongs to how a call works
//! ([`expected`]), and what a function below has logged already ([`check`]).
//!
//! `tests/refusals.rs` of `nonic-verbs` reads the sources of the libraries and finds numbers that go another way.

use libc::c_int;
use std::borrow::Cow;

/// An errno, and what the log says about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errno {
    number: c_int,
    /// Behind a pointer, since results that carry an `Errno` are returned where requests are posted.
    refusal: Option<Box<Refusal>>,
}

/// Why a call was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Refusal {
    what: Cow<'static, str>,
    next: Cow<'static, str>,
}

/// A call is refused: which argument or circumstance is at fault (`what`), and what to do about it (`next`).
#[cold]
pub fn refused(
    number: c_int,
    what: impl Into<Cow<'static, str>>,
    next: impl Into<Cow<'static, str>>,
) -> Errno {
    let (what, next) = (what.into(), next.into());
    Errno {
        number,
        refusal: Some(Box::new(Refusal { what, next })),
    }
}

/// A number that belongs to how a call works, such as `EAGAIN` of a call that does not block: it is not logged.
pub fn expected(number: c_int) -> Errno {
    Errno {
        number,
        refusal: None,
    }
}

/// What the operating system answered last to `call`.
#[cold]
pub fn of_system(call: &str) -> Errno {
    of_io(call, &std::io::Error::last_os_error())
}

/// The same as an error of the standard library's.
#[cold]
pub fn of_io(call: &str, error: &std::io::Error) -> Errno {
    let number = error.raw_os_error().unwrap_or(libc::EIO);
    match number {
        libc::EAGAIN | libc::EINTR | libc::EINPROGRESS => expected(number),
        _ => refused(number, format!("{call}: {error}"), next_step(number)),
    }
}

/// What helps when the operating system refuses something.
fn next_step(number: c_int) -> &'static str {
    match number {
        libc::EMFILE => "raise the limit of open files (`ulimit -n`), or open less at the same time",
        libc::ENFILE => "close files: the whole system has as many open as it permits",
        libc::ENOMEM | libc::ENOBUFS => "free memory, or raise the limit of the process or its container",
        libc::EPERM | libc::EACCES => {
            "permit the process this system call; containers and sandboxes may forbid it"
        }
        libc::EADDRINUSE => "choose another port, or end the program that has it (`ss -anp`)",
        libc::EADDRNOTAVAIL => "use an address of this host (`ip address`)",
        libc::ENETUNREACH | libc::EHOSTUNREACH => "see whether there is a route (`ip route get ADDRESS`)",
        libc::EBADF => "pass a descriptor that is open",
        _ => "see what the system call's man page says of this error",
    }
}

impl Errno {
    /// The number. From here on it is not logged.
    pub fn number(&self) -> c_int {
        self.number
    }

    /// Whether it has this number.
    pub fn is(&self, number: c_int) -> bool {
        self.number == number
    }
}

/// How a library answers C programs. Each library has one, with the function that logs why a call was refused.
pub struct Answers(pub Tell);

/// Logs that `call` was refused with `number`, why, and what to do.
pub type Tell = fn(call: &str, number: c_int, what: &str, next: &str);

impl Answers {
    /// For functions that answer zero or an errno, which most verbs do.
    pub fn code(&self, call: &str, result: Result<(), Errno>) -> c_int {
        match result {
            Ok(()) => 0,
            Err(errno) => self.tell(call, &errno),
        }
    }

    /// For functions that answer with a pointer: NULL with `errno` set.
    pub fn pointer<T>(&self, call: &str, result: Result<*mut T, Errno>) -> *mut T {
        result.unwrap_or_else(|errno| {
            self.tell(call, &errno);
            std::ptr::null_mut()
        })
    }

    /// For functions that answer zero or −1 with `errno` set.
    pub fn minus_one(&self, call: &str, result: Result<(), Errno>) -> c_int {
        self.or_minus_one(call, result.map(|()| 0))
    }

    /// The same for those that answer a number.
    pub fn or_minus_one<T: From<i8>>(&self, call: &str, result: Result<T, Errno>) -> T {
        result.unwrap_or_else(|errno| {
            self.tell(call, &errno);
            T::from(-1)
        })
    }

    /// For functions that answer a number or a negative errno.
    pub fn negative(&self, call: &str, result: Result<c_int, Errno>) -> c_int {
        result.unwrap_or_else(|errno| -self.tell(call, &errno))
    }

    /// Logs a refusal and leaves its number in `errno`.
    #[cold]
    pub fn tell(&self, call: &str, errno: &Errno) -> c_int {
        if let Some(refusal) = &errno.refusal {
            (self.0)(call, errno.number, &refusal.what, &refusal.next);
        }
        // Last: writing to standard error may have changed it.
        set(errno.number);
        errno.number
    }
}

/// For functions that another of the libraries calls and that answer zero or an errno: the caller logs.
pub fn code_for_library(result: Result<(), Errno>) -> c_int {
    Answers(|_, _, _, _| {}).code("", result)
}

/// The same for those that answer a pointer.
pub fn pointer_for_library<T>(result: Result<*mut T, Errno>) -> *mut T {
    Answers(|_, _, _, _| {}).pointer("", result)
}

/// Sets `errno`.
pub fn set(number: c_int) {
    // SAFETY: the C library hands out a pointer to this thread's own errno.
    unsafe { *libc::__errno_location() = number };
}

/// What the last call that failed said.
pub fn last() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// −1 of whatever type a function answers, and `errno` set: for functions that take the place of the C library's, whose
/// refusals are not logged.
pub fn fail<T: From<i8>>(number: c_int) -> T {
    set(number);
    T::from(-1)
}

/// The answer of a verb that answers zero or an errno. If it refused, it has logged why.
pub fn check(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        // A few verbs answer −1 and leave the reason in `errno`.
        -1 => Err(expected(last())),
        errno => Err(expected(errno.abs())),
    }
}

/// The answer of a function that answers a pointer, or NULL with `errno` set. If it refused, it has logged why.
pub fn check_pointer<T>(pointer: *mut T) -> Result<*mut T, Errno> {
    match pointer.is_null() {
        true => Err(expected(last())),
        false => Ok(pointer),
    }
}

/// `EINVAL` for 22: the names of the numbers that the libraries answer.
pub fn name(number: c_int) -> Cow<'static, str> {
    macro_rules! names {
        ($($name:ident)*) => {
            match number {
                $(libc::$name => stringify!($name).into(),)*
                _ => format!("errno {number}").into(),
            }
        };
    }
    names! {
        EPERM ENOENT EINTR EIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL ENFILE EMFILE EFBIG ENOSPC EPIPE EDOM
        ENOSYS ENODATA EPROTO EOVERFLOW ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTONOSUPPORT EOPNOTSUPP EAFNOSUPPORT EADDRINUSE
        EADDRNOTAVAIL ENETUNREACH ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTUNREACH EALREADY EINPROGRESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// Writes down what it is told, and spoils `errno` as writing to a file may.
    const ANSWER: Answers = Answers(|call, number, what, next| {
        let line = format!("{call} {} {what} {next}", name(number));
        TOLD.with(|told| told.borrow_mut().push(line));
        set(libc::EBADF);
    });

    fn told() -> Vec<String> {
        TOLD.with(RefCell::take)
    }

    #[test]
    fn each_kind_of_function_reports_trouble_in_its_own_way_and_all_tell_it() {
        let wrong = |number| refused(number, "what", "next");
        assert_eq!(ANSWER.code("a", Err(wrong(libc::EBUSY))), libc::EBUSY);
        assert_eq!(last(), libc::EBUSY);
        assert_eq!(ANSWER.minus_one("b", Err(wrong(libc::EINVAL))), -1);
        assert_eq!(last(), libc::EINVAL);
        assert!(ANSWER.pointer::<u8>("c", Err(wrong(libc::ENOMEM))).is_null());
        assert_eq!(last(), libc::ENOMEM);
        assert_eq!(ANSWER.or_minus_one::<i64>("d", Err(wrong(libc::EIO))), -1);
        assert_eq!(
            ANSWER.negative("e", Err(wrong(libc::EOVERFLOW))),
            -libc::EOVERFLOW
        );
        assert_eq!(last(), libc::EOVERFLOW);
        let lines = [
            "a EBUSY what next",
            "b EINVAL what next",
            "c ENOMEM what next",
            "d EIO what next",
            "e EOVERFLOW what next",
        ];
        assert_eq!(told(), lines);
        assert_eq!((ANSWER.code("a", Ok(())), ANSWER.minus_one("b", Ok(()))), (0, 0));
        assert!(told().is_empty());
    }

    #[test]
    fn what_belongs_to_how_a_call_works_is_not_told() {
        assert_eq!(ANSWER.minus_one("a", Err(expected(libc::EAGAIN))), -1);
        assert_eq!(last(), libc::EAGAIN);
        assert!(told().is_empty());
        assert_eq!(
            code_for_library(Err(refused(libc::EADDRINUSE, "", ""))),
            libc::EADDRINUSE
        );
        assert!(told().is_empty(), "the caller tells");
    }

    #[test]
    fn what_a_verb_answers_is_an_errno_of_either_sign_or_minus_one() {
        let number = |result: Result<(), Errno>| result.map_err(|errno| errno.number());
        assert_eq!(check(0), Ok(()));
        assert_eq!(number(check(libc::EBUSY)), Err(libc::EBUSY));
        assert_eq!(number(check(-libc::EOVERFLOW)), Err(libc::EOVERFLOW));
        set(libc::ENODATA);
        assert_eq!(number(check(-1)), Err(libc::ENODATA));
        assert!(check_pointer(std::ptr::null_mut::<u8>()).is_err_and(|errno| errno.is(libc::ENODATA)));
    }

    #[test]
    fn what_the_system_refuses_names_the_call() {
        let error = std::io::Error::from_raw_os_error(libc::EMFILE);
        ANSWER.code("ibv_open_device", Err(of_io("eventfd", &error)));
        let told = told();
        assert!(
            told[0].contains("EMFILE eventfd: Too many open files") && told[0].contains("ulimit -n"),
            "{told:?}"
        );
    }
}
