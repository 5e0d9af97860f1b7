//! Random repairs.

use super::*;

const FAULTS: [&str; 6] = ["root 0", "root 1", "child 0", "child 1 goes on", "other child 0", "grandchild 0"];

/// Pseudo-random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

fn all(builder: scoop::Builder, faults: &Faults) -> scoop::Builder {
    let grandchild = GrandchildHandler { faults: faults.clone() };
    two_children(builder, faults).only::<GrandchildHandler>().provide(grandchild)
}

/// Waits until every unfinished run waits for other runs or for an operator.
async fn is_at_rest(db: &Database) {
    eventually("nothing can go on", async || db.able_to_go_on().await == 0).await;
}

/// Lists and explanations have the same reason to wait.
async fn lists_agree_with_explanations(broken: &Broken) -> Result<()> {
    for run in broken.scoop.operate().runs().list().await?.runs {
        let explained = broken.scoop.operate().runs().explain(run.run).await?.runs.remove(0).run;
        assert_eq!((explained.phase, explained.waits_for), (run.phase, run.waits_for), "{}", run.handler);
    }
    Ok(())
}

/// A random repair of a random failed run.
async fn intervene(broken: &Broken, chance: &mut Chance) -> Result<RepairAnswer> {
    let listed = broken.scoop.failed_rollbacks().await?;
    let Some(failed) = listed.get(chance.below(listed.len().max(1))) else {
        return Ok(RepairAnswer::NotFailed);
    };
    let run = failed.lineage.id();
    Ok(match chance.below(4) {
        0 | 1 => broken.scoop.retry(run).await?,
        2 => broken.scoop.skip(run, "by chance").await?,
        _ => broken.scoop.resolve(run, "by chance").await?,
    })
}

/// Repairs at random, while faults are mended and the process starts again now and then. Once all failures are
/// settled, the hierarchy is undone, and nothing is left over.
async fn ends(seed: u64) -> Result<()> {
    println!("seed {seed}");
    let mut chance = Chance(seed);
    let mut faults = vec![FAULTS[chance.below(3)], FAULTS[4 + chance.below(2)]];
    faults.extend((chance.below(2) == 0).then_some(FAULTS[3]));
    let mut broken = Broken::by(&faults, all).await?;
    for _ in 0..4 {
        for _ in 0..=chance.below(2) {
            intervene(&broken, &mut chance).await?;
        }
        is_at_rest(&broken.db).await;
        lists_agree_with_explanations(&broken).await?;
        if !faults.is_empty() && chance.below(2) == 0 {
            broken.faults.mend(faults.swap_remove(chance.below(faults.len())));
        }
        if chance.below(2) == 0 {
            broken.scoop.shutdown().await?;
            let scoop = all(broken.db.scoop(), &broken.faults).start().await?;
            broken = Broken { root: scoop.find(broken.root.id()).await?, scoop, ..broken };
            is_at_rest(&broken.db).await;
        }
    }
    while let Some(failed) = broken.scoop.failed_rollbacks().await?.pop() {
        let answer = broken.scoop.resolve(failed.lineage.id(), "at last").await?;
        assert_eq!(answer, RepairAnswer::Accepted, "{}", broken.root.tree().await?);
        is_at_rest(&broken.db).await;
    }
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_can_be_undone_after_random_repairs() -> Result<()> {
    for seed in 10..16 {
        ends(seed).await?;
    }
    Ok(())
}
