//! The functions of the C library that ours stand in front of.
//!
//! They are looked for by name, once, before `main` if possible: `dlsym` takes a lock. Older and newer C libraries lack
//! some of them (`stat` came in 2.33, when `__xstat` went); what is missing is done by the system call it stands for.

use libc::{DIR, FILE, c_char, c_int, c_uint, c_void, dirent, mode_t, off_t, size_t, ssize_t};
use nonic_abi::symbol::Symbol;

/// `functions! { fn name = c"symbol"(argument: type) -> type; … }`: each becomes a function that answers the one of that
/// symbol, if there is one.
macro_rules! functions {
    ($(fn $name:ident = $symbol:literal($($type:ty),*) -> $answer:ty;)*) => {
        $(
            pub(crate) fn $name() -> Option<unsafe extern "C-unwind" fn($($type),*) -> $answer> {
                // SAFETY: that is the signature the function of this name has.
                symbols::$name.find_next().map(|address| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $answer>(address) })
            }
        )*

        #[allow(non_upper_case_globals, reason = "they have the names of functions")]
        mod symbols {
            use super::Symbol;
            $(pub(super) static $name: Symbol = Symbol::new($symbol);)*
        }

        /// Looks for all of them.
        pub(crate) fn find_all() {
            $(symbols::$name.find_next();)*
        }
    };
}

pub(crate) type Path = *const c_char;
/// A comparison of entries, which is passed on as it is.
pub(crate) type Compare =
    Option<unsafe extern "C-unwind" fn(*mut *const dirent, *mut *const dirent) -> c_int>;
/// Which entries are wanted, likewise.
pub(crate) type Filter = Option<unsafe extern "C-unwind" fn(*const dirent) -> c_int>;

/// What to do about a folder that cannot be read; passed on as it is.
pub(crate) type OnError = Option<unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int>;

/// The names found, and which functions to use.
#[repr(C)]
pub(crate) struct Glob {
    pub(crate) count: size_t,
    pub(crate) paths: *mut *mut c_char,
    pub(crate) reserved: size_t,
    pub(crate) flags: c_int,
    pub(crate) closedir: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) readdir: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    pub(crate) opendir: Option<unsafe extern "C-unwind" fn(*const c_char) -> *mut c_void>,
    pub(crate) lstat: Option<unsafe extern "C-unwind" fn(*const c_char, *mut c_void) -> c_int>,
    pub(crate) stat: Option<unsafe extern "C-unwind" fn(*const c_char, *mut c_void) -> c_int>,
}

functions! {
    fn stat = c"stat"(Path, *mut c_void) -> c_int;
    fn lstat = c"lstat"(Path, *mut c_void) -> c_int;
    fn fstatat = c"fstatat"(c_int, Path, *mut c_void, c_int) -> c_int;
    fn xstat = c"__xstat"(c_int, Path, *mut c_void) -> c_int;
    fn lxstat = c"__lxstat"(c_int, Path, *mut c_void) -> c_int;
    fn fxstatat = c"__fxstatat"(c_int, c_int, Path, *mut c_void, c_int) -> c_int;
    fn statx = c"statx"(c_int, Path, c_int, c_uint, *mut c_void) -> c_int;
    fn access = c"access"(Path, c_int) -> c_int;
    fn eaccess = c"eaccess"(Path, c_int) -> c_int;
    fn faccessat = c"faccessat"(c_int, Path, c_int, c_int) -> c_int;
    fn open = c"open"(Path, c_int, mode_t) -> c_int;
    fn open_2 = c"__open_2"(Path, c_int) -> c_int;
    fn openat = c"openat"(c_int, Path, c_int, mode_t) -> c_int;
    fn openat_2 = c"__openat_2"(c_int, Path, c_int) -> c_int;
    fn fopen = c"fopen"(Path, Path) -> *mut FILE;
    fn freopen = c"freopen"(Path, Path, *mut FILE) -> *mut FILE;
    fn read = c"read"(c_int, *mut c_void, size_t) -> ssize_t;
    fn read_checked = c"__read_chk"(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    fn pread = c"pread"(c_int, *mut c_void, size_t, off_t) -> ssize_t;
    fn pread_checked = c"__pread_chk"(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
    fn opendir = c"opendir"(Path) -> *mut DIR;
    fn scandir = c"scandir"(Path, *mut *mut *mut dirent, Filter, Compare) -> c_int;
    fn scandirat = c"scandirat"(c_int, Path, *mut *mut *mut dirent, Filter, Compare) -> c_int;
    fn glob = c"glob"(Path, c_int, OnError, *mut Glob) -> c_int;
    fn readlink = c"readlink"(Path, *mut c_char, size_t) -> ssize_t;
    fn readlinkat = c"readlinkat"(c_int, Path, *mut c_char, size_t) -> ssize_t;
    fn readlink_checked = c"__readlink_chk"(Path, *mut c_char, size_t, size_t) -> ssize_t;
    fn readlinkat_checked = c"__readlinkat_chk"(c_int, Path, *mut c_char, size_t, size_t) -> ssize_t;
    fn realpath = c"realpath"(Path, *mut c_char) -> *mut c_char;
    fn realpath_checked = c"__realpath_chk"(Path, *mut c_char, size_t) -> *mut c_char;
    fn getxattr = c"getxattr"(Path, Path, *mut c_void, size_t) -> ssize_t;
    fn lgetxattr = c"lgetxattr"(Path, Path, *mut c_void, size_t) -> ssize_t;
    fn listxattr = c"listxattr"(Path, *mut c_char, size_t) -> ssize_t;
    fn llistxattr = c"llistxattr"(Path, *mut c_char, size_t) -> ssize_t;
    fn chdir = c"chdir"(Path) -> c_int;
    fn getcwd = c"getcwd"(*mut c_char, size_t) -> *mut c_char;
    fn getcwd_checked = c"__getcwd_chk"(*mut c_char, size_t, size_t) -> *mut c_char;
}
