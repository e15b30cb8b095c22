//! Objects: a `Box` whose first field is the structure the program sees.
//!
//! [`Object`] ties the two types together, [`Users`] keeps an object from being destroyed while others need
//! it, [`Acks`] makes destruction wait until the program has acknowledged every event about it.

use nonic_abi::errno::{Errno, refused};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Something the program holds a pointer to.
///
/// # Safety
///
/// The type is `repr(C)` and its first field is `UnsafeCell<Self::C>`, or a structure that begins with `C`.
pub(crate) unsafe trait Object: Sized {
    /// What the program sees.
    type C;

    /// Gives the object to the program.
    fn leak(self) -> *mut Self::C {
        Box::into_raw(Box::new(self)).cast()
    }

    /// The pointer the program has.
    fn as_c(&self) -> *mut Self::C {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// The object behind a program's pointer; `EINVAL` for NULL.
///
/// # Safety
///
/// The pointer is NULL or came from [`Object::leak`] and was not yet given to [`reclaim`]; so for all of `'a`.
pub(crate) unsafe fn object<'a, T: Object>(pointer: *mut T::C) -> Result<&'a T, Errno> {
    // SAFETY: the caller's promise.
    unsafe { pointer.cast::<T>().as_ref() }.ok_or_else(is_null::<T::C>)
}

/// Takes an object back to be dropped.
///
/// # Safety
///
/// As for [`object`], and the pointer is not used afterwards.
pub(crate) unsafe fn reclaim<T: Object>(pointer: *mut T::C) -> Box<T> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(pointer.cast::<T>()) }
}

/// A structure the program passes; `EINVAL` for NULL.
///
/// # Safety
///
/// The pointer is NULL or to a valid `T` that no thread writes during `'a`.
pub(crate) unsafe fn argument<'a, T>(pointer: *const T) -> Result<&'a T, Errno> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(is_null::<T>)
}

/// The same for one that is filled in.
///
/// # Safety
///
/// The pointer is NULL or to a valid `T` that nothing else uses during `'a`.
pub(crate) unsafe fn argument_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Errno> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(is_null::<T>)
}

/// A pointer to a `T`, which is a structure of the header or a number, is NULL.
#[cold]
fn is_null<T>() -> Errno {
    let name = std::any::type_name::<T>();
    let name = name.rsplit("::").next().unwrap_or(name);
    refused(
        libc::EINVAL,
        format!("the pointer to {name} is NULL"),
        "pass what the call that made it returned; look whether that call failed",
    )
}

/// A number for the `handle` field. Nothing but imports looks at it.
pub(crate) fn next_handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// How many other objects need this one.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn join(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// `EBUSY` while there are any.
    pub(crate) fn none(&self) -> Result<(), Errno> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            users => Err(refused(
                libc::EBUSY,
                format!("other objects need it, of which there are {users}"),
                "destroy what was made with it first: queue pairs before their completion queues, all before the protection domain",
            )),
        }
    }
}

/// Events told and acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    reported: u32,
    acknowledged: u32,
}

impl Acks {
    /// The program was told of an event.
    pub(crate) fn report(&self) {
        let mut counts = self.lock();
        counts.reported = counts.reported.wrapping_add(1);
    }

    /// The program acknowledged `number` of them.
    pub(crate) fn acknowledge(&self, number: u32) {
        let mut counts = self.lock();
        counts.acknowledged = counts.acknowledged.wrapping_add(number);
        self.changed.notify_all();
    }

    /// Waits until none is open.
    pub(crate) fn wait(&self) {
        let mut counts = self.lock();
        // A program that acknowledges too much is not punished by waiting for ever.
        while counts.reported.wrapping_sub(counts.acknowledged) as i32 > 0 {
            counts = self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Storage for the pthread objects inside C structures, which programs may expect to be initialised.
pub(crate) fn zeroed<T: ZeroValid>() -> T {
    // SAFETY: `ZeroValid` says that all zeros is a value.
    unsafe { std::mem::zeroed() }
}

/// # Safety
///
/// All zeros is a valid value.
pub(crate) unsafe trait ZeroValid {}

macro_rules! zero_valid {
    ($($type:ty),* $(,)?) => { $(
        // SAFETY: made of integers, raw pointers, optional functions and static pthread initialisers.
        unsafe impl ZeroValid for $type {}
    )* };
}

zero_valid!(
    nonic_abi::verbs::verbs_context,
    nonic_abi::verbs::ibv_device,
    nonic_abi::verbs::ibv_device_attr_ex,
    nonic_abi::verbs::ibv_port_attr,
    nonic_abi::verbs::ibv_cq_ex,
    nonic_abi::verbs::ibv_qp_ex_with_flush,
    nonic_abi::verbs::ibv_qp_attr,
    nonic_abi::verbs::ibv_qp_init_attr,
    nonic_abi::verbs::ibv_ah_attr,
    nonic_abi::verbs::ibv_srq,
    nonic_abi::verbs::ibv_wc,
    libc::stat,
    libc::timespec,
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn users_keep_an_object_busy() {
        let users = Users::default();
        assert_eq!(users.none(), Ok(()));
        users.join();
        assert!(users.none().is_err_and(|errno| errno.is(libc::EBUSY)));
        users.leave();
        assert_eq!(users.none(), Ok(()));
    }

    #[test]
    fn destruction_waits_for_acknowledgements() {
        let acks = Arc::new(Acks::default());
        acks.wait();
        acks.report();
        acks.report();
        acks.acknowledge(1);
        let acknowledged = Arc::new(AtomicBool::new(false));
        let waiter = {
            let (acks, acknowledged) = (Arc::clone(&acks), Arc::clone(&acknowledged));
            std::thread::spawn(move || {
                acks.wait();
                assert!(acknowledged.load(Ordering::SeqCst), "it waited for the last one");
            })
        };
        acknowledged.store(true, Ordering::SeqCst);
        acks.acknowledge(1);
        waiter.join().expect("the waiter's assertion holds");
    }
}
