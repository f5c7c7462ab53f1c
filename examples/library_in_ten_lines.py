"""The library in ten lines: a new user clicks biographies, and the slates come to contain more of them.

pip install '.[train]' in the checkout, then: python examples/library_in_ten_lines.py
"""

from slatewise import Catalog
from slatewise.data.synthetic import make_world
from slatewise.recommender import Recommender

catalog = Catalog.train(make_world().dataset)  # or use Dataset.from_files("likes.csv", "items.csv", positive="> 3")
with Recommender(catalog) as recommender:  # store="sqlite:///slates.db" remembers users
    for number in range(1, 5):
        slate = recommender.recommend("ann", k=10, diversity=0.2)
        biographies = [item.id for item in slate.items if "Biography" in item.categories]
        recommender.feedback(slate.slate_id, clicked=biographies)
        print(f"slate {number}: {len(biographies)} of 10 are biographies, variety {slate.variety:.2f}")
