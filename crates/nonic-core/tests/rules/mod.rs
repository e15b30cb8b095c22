//! The rules of the NIC, one test each, with explicit time and hand-carried packets.
//! One module per behaviour.

mod acknowledgements;
mod arrivals;
mod atomic_write_and_flush;
mod batch_limits;
mod completion_queues;
mod congestion_notifications;
mod datagrams;
mod device_failure;
mod direct_access;
mod direct_targets;
mod draining;
mod duplicates;
mod explanations;
mod extended_connections;
mod fair_shares;
mod flushing;
mod loss_recovery;
mod lost_answers;
mod management;
mod memory_keys;
mod memory_windows;
mod order_and_limits;
mod posting;
mod rates;
mod rc_operations;
mod receiver_not_ready;
mod refusals;
mod reordering;
mod sequence_numbers;
mod shared_receives;
mod state_machine;
mod timeouts;
mod unreliable_connection;
mod views;
mod window;
