//! The edges of Scoop: webhooks become messages and signals, steps send signed callbacks, and messages are CloudEvents.
//!
//! [`webhook`] is a handler to mount in a router of axum. It verifies a delivery by [Standard Webhooks], or by the schemes of
//! [Stripe] and [GitHub], and launches a message with the id of the delivery as its unique key. [`Signer`] signs what a step sends, by
//! Standard Webhooks. [`CloudEvent`] is a message in the format of [CloudEvents] 1.0.
//!
//! The [guide](https://docs.rs/crate/scoop-saga/latest/source/docs/edges.md) has a page about them.
//!
//! [Standard Webhooks]: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
//! [Stripe]: https://docs.stripe.com/webhooks#verify-manually
//! [GitHub]: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
//! [CloudEvents]: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md

mod cloud_event;
mod delivery;
mod key;
mod refusal;
mod signer;
mod verifier;
mod webhook;

pub use crate::cloud_event::CloudEvent;
pub use crate::delivery::Delivery;
pub use crate::key::BadSecret;
pub use crate::refusal::Refusal;
pub use crate::signer::{Signer, delivered};
pub use crate::verifier::Verifier;
pub use crate::webhook::{Reaction, webhook};
