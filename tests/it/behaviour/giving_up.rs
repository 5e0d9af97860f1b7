//! What becomes of a step whose run has to give up when the step ends.

use super::*;
use crate::support::{Database, Gate};

#[derive(ContextKey, Serialize, Deserialize)]
struct Mark(String);

struct Marking {
    gate: Gate,
}

#[saga(name = "marking")]
#[subscribes(Root)]
impl Marking {
    #[step]
    async fn mark(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.set(Mark("left behind".into()))?;
        self.gate.pass().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_context_that_a_refused_step_left_behind_is_on_record() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = db.scoop().only::<Marking>().provide(Marking { gate: gate.clone() }).start().await?;
    let root = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    scoop.cancel(root.id(), "enough").await?;
    gate.open(1);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    let marked = "SELECT type::text FROM scoop.message_event
                  WHERE context ->> 'Mark' = 'left behind' ORDER BY created_at";
    assert_eq!(db.texts(marked).await, ["ROLLING_BACK", "ROLLED_BACK"]);
    Ok(())
}
