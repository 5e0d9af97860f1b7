//! Rows of sagas and processes changed, copied and deleted at random, under two processes with sagas of their own:
//! those of one saga and its process are damaged, and the hierarchies of the other saga finish.
//!
//! Left out is the table of migrations, which is read at the start only: a program that finds another version does not
//! start.

use super::*;

/// How often the process starts whose rows are damaged, and how many are damaged in each of its lives.
const LIVES: u32 = 2;
const TAMPERED: u32 = 20;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "brittle")]
struct Brittle;

handler! {
    Glass: "glass" on Brittle;
    step "ring" ring => done();
}

/// It runs by itself in the process that is damaged.
#[derive(Default)]
struct Bell;

#[saga(name = "bell", every = "1s")]
#[subscribes(Tick)]
impl Bell {
    #[step]
    async fn strike(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

/// It runs by itself in the other process.
struct Clock {
    gate: Gate,
}

#[saga(name = "clock", every = "1s")]
#[subscribes(Tick)]
impl Clock {
    #[step]
    async fn strike(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

#[test]
fn damaged_rows_of_a_saga_and_its_process_hurt_no_other_saga() -> Result<()> {
    without_panics(async {
        for seed in seeds() {
            sagas_are_damaged(seed).await?;
        }
        Ok(())
    })
}

async fn sagas_are_damaged(seed: u64) -> Result<()> {
    let (db, mut dice) = (Database::new().await, Dice(seed));
    let columns = Columns::of(&db, &["handler", "worker", "definition", "schedule"]).await;
    let (supply, strokes) = (Gate::default(), Gate::default());
    supply.open(1_000_000);
    strokes.open(1_000_000);
    let healthy = db.scoop().only::<Assembly>().only::<Supply>().provide(Supply { gate: supply });
    let healthy = healthy.only::<Clock>().provide(Clock { gate: strokes.clone() }).start().await?;
    let pool = db.another_pool(6).await;
    let start = async || Scoop::builder().postgres(pool.clone()).only::<Glass>().only::<Bell>().start().await;

    let mut done = vec![];
    for _ in 0..LIVES {
        let damaged = start().await?;
        for _ in 0..TAMPERED {
            done.extend(tamper(&db, &mut dice, &columns).await);
            // The result does not count: the damage may be that no saga handles it.
            let _ = damaged.launch(Brittle).await;
        }
        assert!(healthy_sagas_run(&healthy, &strokes).await.is_ok(), "seed {seed}:\n{}", done.join("\n"));
        comes_to_rest(&db, IDLE_TRANSACTIONS * 2).await;
        damaged.shutdown().await?;
    }

    // A process that starts repairs what belongs to it.
    let repaired = start().await?;
    let root = repaired.launch(Brittle).await?;
    let ends_or_is_listed = async || {
        let listed = repaired.operate().failures().stuck().limit(1_000).await.expect("a list");
        listed.iter().any(|run| run.hierarchy() == root.id())
            || timeout(Duration::from_millis(50), root.wait()).await.is_ok()
    };
    crate::support::eventually(&format!("its end, seed {seed}:\n{}", done.join("\n")), ends_or_is_listed)
        .await;
    healthy_sagas_run(&healthy, &strokes).await?;
    repaired.shutdown().await?;
    healthy.shutdown().await?;
    Ok(())
}

/// Hierarchies of the other process end, and its schedule goes on.
async fn healthy_sagas_run(healthy: &Scoop, strokes: &Gate) -> Result<()> {
    are_healthy(healthy).await?;
    strokes.arrivals(u32::try_from(strokes.arrived()).expect("few") + 1).await;
    Ok(())
}

/// Damages a row of the sagas or of their process, if it is possible.
async fn tamper(db: &Database, dice: &mut Dice, columns: &Columns) -> Option<String> {
    let mut damage = Damage::draw(dice, columns);
    damage.value = damage.value.replace("{root}", &Uuid::nil().to_string());
    // The engine follows such a row, and is not idle then.
    let makes_it_run_all_the_time = damage.column == "every_ms" && damage.value == "7";
    if makes_it_run_all_the_time {
        return None;
    }
    let own = match &*damage.table {
        "worker" => "'glass' = ANY (handlers)",
        _ => "handler IN ('glass', 'bell')",
    };
    let done = sqlx::query(AssertSqlSafe(damage.statement(columns, own))).execute(db.pool()).await.ok()?;
    (done.rows_affected() == 1).then(|| damage.to_string())
}
