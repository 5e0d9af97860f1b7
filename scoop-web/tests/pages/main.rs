//! The pages on a real PostgreSQL, over HTTP and in a browser: what they show, what they refuse, and what their actions do.

mod access;
mod acting;
mod browser;
mod browsing;
mod changes;
mod deciding;
mod finding;
mod health;
mod many;
mod operating;
mod shop;
