//! Queue pairs independently of a transport: states, attributes, and how requests complete.

mod attributes;
mod context;
mod inbound;
mod mask;
mod post;
mod send_queue;
mod state;
mod traffic;
mod view;

pub use attributes::{AckTimeout, Path, PathMtu, QpAttributes, RnrTimer};
pub use context::QpCapacity;
pub(crate) use context::QpContext;
pub(crate) use inbound::{InboundMessage, InboundSend, Misplaced};
pub use mask::AttributeMask;
pub use post::PostError;
pub(crate) use post::check_data;
pub(crate) use send_queue::{Queued, SendQueue};
pub(crate) use state::check as check_transition;
pub use state::{ModifyError, Named, QpState, Transition, transition};
pub use traffic::{Traffic, Troubles};
pub use view::{PeerView, QueuePairView, SequenceView};
