//! Memory regions, memory windows and device memory.
//!
//! - `mr`: registering and what can be done to a registration;
//! - `region`: the kinds of memory behind one, and how memory that is not there is noticed;
//! - `dm`: device memory, which is pages of this process;
//! - `window`: memory windows.

mod buffer;
mod dm;
mod mr;
mod region;
mod window;

pub(crate) use dm::{alloc_dm, free_dm, reg_dm_mr};
pub(crate) use mr::{advise_mr, alloc_null_mr, ibv_dereg_mr, ibv_reg_mr};
pub(crate) use window::{alloc_mw, bind_mw, binding, dealloc_mw};
