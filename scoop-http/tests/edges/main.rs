//! Webhooks, callbacks and CloudEvents, against recorded requests and on a real PostgreSQL.

mod callbacks;
mod cloud_events;
mod recorded;
mod shop;
mod webhooks;
