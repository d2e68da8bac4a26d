import torch
from torch_geometric.nn import RGCNConv

from tvm_gnn_cost.models.relational_conv import RelationalConv


def test_it_computes_what_pygs_rgcn_computes_with_its_parameters() -> None:
    torch.manual_seed(0)
    # Two edges of one relation into one node are averaged, not summed: 200 edges between 20 nodes have many of those.
    x, edge_index, relation = torch.randn(20, 5), torch.randint(0, 20, (2, 200)), torch.randint(0, 6, (200,))
    theirs, ours = RGCNConv(5, 7, 6), RelationalConv(5, 7, 6)
    ours.load_state_dict(theirs.state_dict())
    for edges in (200, 1, 0):
        expected = theirs(x, edge_index[:, :edges], relation[:edges])
        torch.testing.assert_close(ours(x, edge_index[:, :edges], relation[:edges]), expected)
    results = [conv(x, edge_index, relation).square().sum() for conv in (theirs, ours)]
    for result in results:
        result.backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
