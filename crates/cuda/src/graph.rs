//! CUDA graphs: launches recorded from a stream once, replayed with one call.

use crate::driver::Held;
use crate::error::CudaError;
use crate::ffi::Handle;
use crate::stream::Stream;
use std::sync::Arc;

/// A recorded graph that can be replayed. Buffers and modules that its nodes name have to live as long as it is replayed: the device
/// reports an illegal address otherwise.
pub struct Graph {
    held: Arc<Held>,
    handle: Handle,
    nodes: usize,
}

impl Stream {
    /// Records what `work` gives to this stream instead of executing it. Whatever `work` answers, the recording ends.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        let api = self.held.bind()?;
        api.capture_begin(self.handle)?;
        let done = work();
        let api = self.held.bind()?;
        let recorded = api.capture_end(self.handle);
        if done.is_err()
            && let Ok(graph) = recorded
        {
            api.graph_destroy(graph);
            return Err(done.err().unwrap_or(CudaError::Launch { what: "the recording failed".into() }));
        }
        done?;
        let graph = recorded?;
        let made = api.graph_nodes(graph).and_then(|nodes| Ok((nodes, api.graph_instantiate(graph)?)));
        // The replayable graph is a copy.
        api.graph_destroy(graph);
        let (nodes, handle) = made?;
        Ok(Graph { held: self.held.clone(), handle, nodes })
    }

    /// Gives all of the graph's nodes to the stream.
    pub fn replay(&self, graph: &Graph) -> Result<(), CudaError> {
        self.held.bind()?.graph_launch(graph.handle, self.handle)
    }
}

impl Graph {
    /// How many launches, copies and fills it has.
    pub fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(api) = self.held.bind() {
            api.graph_exec_destroy(self.handle);
        }
    }
}
