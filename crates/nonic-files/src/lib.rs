//! `libnonic_files.so`: a program sees the files of nonic's devices where it looks for those of hardware.
//!
//! Loaded in front of the C library by `nonic run`, it stands before the functions that take a path. A path below
//! `/sys/class/infiniband`, `/dev/infiniband` and the like is replaced by the same path below the folder that the variable
//! `NONIC_FILES` names; every other goes on untouched, after a glance at its first letters.
//!
//! It refuses to allocate, to lock and to use the standard library's files: programs call these functions in signal
//! handlers, between `vfork` and `exec`, and before anything is set up. And it refuses to touch what is not a path:
//! descriptors, streams and folders that were opened are the C library's own. What does not go through the C library (a
//! static program, Go) does not see the files this way; `nonic run` mounts them for those.
//!
//! Read first: `redirect` (what happens to a path), then `calls` (to which functions). `next` is how the C library's own
//! are found.
//!
//! All functions are `C-unwind` and leave nothing to be undone: threads can be cancelled in `open`, and that unwinds.

// A test must not replace its own C library: there, nothing here is exported, so little of it is used.
#![cfg_attr(test, allow(dead_code))]

mod calls;
mod counters;
mod glob;
mod next;
mod redirect;
mod stat;
mod text;
