//! The list of long pieces of work that go on on all cores.

use super::Core;
use crate::env::call;
use crate::error::OpError;
use crate::owner::tasks::TaskReport;
use std::rc::Rc;

impl Core {
    /// Tasks under way and the last that ended, of all cores: those with an id, the newest first, then collections whose points
    /// are being put into the graph.
    ///
    /// # Errors
    /// [`OpError::Busy`].
    pub async fn tasks(self: &Rc<Self>) -> Result<Vec<TaskReport>, OpError> {
        let mut all = Vec::new();
        for core in 0..self.env().cores() {
            let of_core = call(self, core, |there| async move { there.collections.tasks.reports() }).await?;
            all.extend(of_core);
        }
        all.sort_by_key(|task| std::cmp::Reverse(task.id));
        // Until collections are known none of them is being indexed.
        for info in self.collections().unwrap_or_default() {
            if info.stats.tail > 0 {
                all.push(TaskReport {
                    id: None,
                    kind: "index",
                    collection: info.name,
                    stage: "linking",
                    done: info.stats.indexed(),
                    total: info.stats.points(),
                    began_ms: 0,
                    ended_ms: None,
                    error: None,
                });
            }
        }
        Ok(all)
    }
}
