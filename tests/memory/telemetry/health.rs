//! The health of a process.

use scoop::health::EngineState;

use super::*;

#[tokio::test(start_paused = true)]
async fn health_follows_start_and_shutdown() -> Result<()> {
    let database = InMemory::new();
    let shop = shop(&database).await?;
    let health = shop.scoop.health().await;
    assert_eq!((health.engine, health.has_session), (EngineState::Running, true));
    assert!(health.is_live() && health.is_ready());
    let client = Scoop::builder().in_memory_database(&database).client().await?.health().await;
    assert_eq!((client.engine, client.has_session, client.lag), (EngineState::Absent, false, Duration::ZERO));
    assert!(client.is_live() && client.is_ready());
    shop.scoop.shutdown().await?;
    let health = shop.scoop.health().await;
    assert_eq!(health.engine, EngineState::Stopping);
    assert!(health.is_live() && !health.is_ready());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn process_without_its_session_is_live_and_not_ready() -> Result<()> {
    let (events, _guard) = Events::listen();
    let shop = shop(&InMemory::new()).await?;
    // The first attempt to open another one fails.
    shop.link.fail_before("register", 1);
    shop.process.disconnect();
    eventually("the session is lost", async || !shop.scoop.health().await.has_session).await;
    let health = shop.scoop.health().await;
    assert!(health.is_live() && !health.is_ready(), "{health:?}");
    eventually("a new session", async || !events.of("session_renewed").is_empty()).await;
    assert!(shop.scoop.health().await.is_ready());
    Ok(())
}
