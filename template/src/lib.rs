//! The sagas of the service.

pub mod checkout;
