//! rsockets are not offered yet: the names are here, so that programs that use some of the library start, and all
//! of them fail with `EOPNOTSUPP`.

use crate::errno;
use libc::{EOPNOTSUPP, ssize_t};

macro_rules! refused {
    ($($name:ident)*) => { $(
        // Arguments are the caller's to clean up in every C calling convention here, so that one form fits all.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> ssize_t {
            errno::set(EOPNOTSUPP);
            -1
        }
    )* };
}

refused! {
    rsocket rbind rlisten raccept rconnect rshutdown rclose
    rrecv rrecvfrom rrecvmsg rsend rsendto rsendmsg rread rreadv rwrite rwritev
    rpoll rselect rgetpeername rgetsockname rsetsockopt rgetsockopt rfcntl
    riomap riounmap riowrite
}
