//! The end of long work by the user.

/// Waits until the user interrupts the program.
pub(crate) async fn interrupted() {
    // Without a handler of the signal the program ends as the system has it end.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
