//! How much a rollback reads.

use super::*;
use crate::support::{Database, eventually};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "counted-loop")]
struct Round {
    iterations: u32,
}

handler! {
    Loop: "counted-loop" on Round;
    #[step(rollback = unturn)]
    async fn turn(&self, scope: &mut Scope<'_>, round: &Round) -> Result<Next<LoopStep>> {
        scope.launch(Child).await?;
        Ok(if scope.iteration() + 1 < round.iterations { Next::Repeat } else { Next::Continue })
    }

    step "end" end => fails(SIMULATED);
    rollback unturn => done().silently();
}

handler! {
    Turn: "counted-turn" on Child;
    step "act" act => done().silently();
}

/// How many rows of the log are read, there and back.
async fn rows_read(iterations: u32) -> Result<i64> {
    let db = Database::new().await;
    let scoop = db.start((Loop, Turn)).await?;
    assert!(matches!(scoop.launch(Round { iterations }).await?.wait().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    drop(scoop);
    // A session reports its reads when it ends.
    db.pool().close().await;
    let pool = db.another_pool(1).await;
    let number = async |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(&pool).await.unwrap();
    let others = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    eventually("all other sessions end", async || number(others).await == 0).await;
    let read = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'message_event'";
    Ok(number(read).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_of_four_times_the_length_reads_four_times_as_much() -> Result<()> {
    let (short, long) = (rows_read(100).await?, rows_read(400).await?);
    assert!(long > 2 * short, "{short} and {long} rows: not all of it was counted");
    assert!(long < 6 * short, "{short} rows, and {long} of the long one");
    Ok(())
}
