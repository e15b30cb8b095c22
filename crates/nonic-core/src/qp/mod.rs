//! Queue pairs independently of a transport: states, attributes, and how requests complete.

mod attributes;
mod context;
mod mask;
mod state;
mod traffic;
mod view;

pub use attributes::{AckTimeout, Path, PathMtu, QpAttributes, RnrTimer};
pub use context::QpCapacity;
pub(crate) use context::QpContext;
pub use mask::AttributeMask;
pub(crate) use state::check as check_transition;
pub use state::{ModifyError, Named, QpState, Transition, transition};
pub use traffic::{Traffic, Troubles};
pub use view::{PeerView, QueuePairView, SequenceView};
