"""sentence-transformers offline: a tiny BERT and a tokenizer of its own, trained, saved, searched."""

import os
import warnings

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, InputExample, SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses, models, util
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from told import tell
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast, set_seed

warnings.filterwarnings("ignore")
TEXTS = [
    "a cat sat on the mat", "the dog ran after the cat", "birds sing in the morning", "a small bird sat on a branch",
    "the car drove down the road", "a red car stood in the street", "trains run on rails", "the train was late again",
    "she cooks rice and beans", "dinner was rice with vegetables", "he reads a long book", "the book lay on the table",
]

# --- a tokenizer and a model from nothing ----------------------------------------------------

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
# of a list: what WordPieceTrainer makes is not the same twice
tokenizer = Tokenizer(WordPiece({word: number for number, word in enumerate([*SPECIAL, *WORDS, "##s", "##ing"])}, unk_token="[UNK]"))
tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", model_max_length=32)
made = fast(TEXTS[:3], padding=True, return_tensors="pt")
tell("tokens", {key: value for key, value in made.items()})
tell("decoded", [fast.decode(row, skip_special_tokens=True) for row in made["input_ids"]])
set_seed(0)
sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 40}
BertModel(BertConfig(vocab_size=len(fast), **sizes)).save_pretrained("tiny")
fast.save_pretrained("tiny")

for how in ("mean", "cls", "max"):
    transformer = models.Transformer("tiny", max_seq_length=32)
    model = SentenceTransformer(modules=[transformer, models.Pooling(transformer.get_word_embedding_dimension(), pooling_mode=how), models.Normalize()], device="cpu")
    found = model.encode(TEXTS, batch_size=5)
    tell(f"vectors, {how}", found, 1e-5)
torch.manual_seed(1)
model = SentenceTransformer(modules=[transformer, models.Pooling(16), models.Dense(16, 8)], device="cpu")
tell("as tensors", [model.encode(TEXTS[:2], convert_to_tensor=True), model.encode("one text").shape], 1e-5)
tell("lengths", [model.get_sentence_embedding_dimension(), model.max_seq_length])

# --- trained ---------------------------------------------------------------------------------

pairs = [(TEXTS[k], TEXTS[k + 1]) for k in range(0, 12, 2)]
sets = {
    "MultipleNegativesRankingLoss": {"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]},
    "CosineSimilarityLoss": {"first": [a for a, _ in pairs], "second": [b for _, b in pairs[1:] + pairs[:1]], "score": [0.1 * k for k in range(6)]},
    "CoSENTLoss": {"first": [a for a, _ in pairs], "second": [b for _, b in pairs[1:] + pairs[:1]], "score": [0.1 * k for k in range(6)]},
    "TripletLoss": {"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs], "negative": [b for _, b in pairs[2:] + pairs[:2]]},
    "ContrastiveLoss": {"first": [a for a, _ in pairs], "second": [b for _, b in pairs], "label": [0, 1, 1, 0, 1, 0]},
}
for name, columns in sets.items():
    set_seed(2)
    transformer = models.Transformer("tiny", max_seq_length=32)
    model = SentenceTransformer(modules=[transformer, models.Pooling(16)], device="cpu")
    arguments = SentenceTransformerTrainingArguments(
        "out", num_train_epochs=3, per_device_train_batch_size=3, learning_rate=1e-3, logging_steps=1, report_to=[], save_strategy="no",
        disable_tqdm=True, use_cpu=True, seed=3,
    )
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=Dataset.from_dict(columns), loss=getattr(losses, name)(model))
    trainer.train()
    tell(f"losses, {name}", [each["loss"] for each in trainer.state.log_history if "loss" in each], 2e-3)
    tell(f"trained, {name}", model.encode(TEXTS[:3]), 2e-3)

model.save("saved")
again = SentenceTransformer("saved", device="cpu")
tell("again", bool(np.allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-6)))
tell("files", sorted(os.listdir("saved")))
run = SentenceTransformer("saved", device="cpu")
run[0].auto_model = torch.compile(run[0].auto_model)
tell("compiled", run.encode(TEXTS), 2e-3)

# --- searched --------------------------------------------------------------------------------

vectors = model.encode(TEXTS, convert_to_tensor=True)
tell("similar", [model.similarity(vectors, vectors), util.dot_score(vectors, vectors[:2]), util.pairwise_cos_sim(vectors[:3], vectors[3:6])], 2e-3)
hits = util.semantic_search(vectors[:2], vectors, top_k=3)
tell("hits", [[hit["corpus_id"] for hit in one] for one in hits])
tell("groups", sorted(map(sorted, util.community_detection(vectors, threshold=0.5, min_community_size=2))))
tell("mined", [[a, b] for _, a, b in util.paraphrase_mining_embeddings(vectors, top_k=2)[:4]])
evaluator = EmbeddingSimilarityEvaluator([a for a, _ in pairs], [b for _, b in pairs], [0.9, 0.1, 0.5, 0.3, 0.7, 0.2])
tell("evaluated", {k: float(v) for k, v in evaluator(model).items()}, 5e-3)

set_seed(4)
BertForSequenceClassification(BertConfig(vocab_size=len(fast), num_labels=1, **sizes)).save_pretrained("cross")
fast.save_pretrained("cross")
cross = CrossEncoder("cross", device="cpu", max_length=32)
tell("cross", cross.predict(pairs), 1e-5)
ranked = cross.rank(TEXTS[0], TEXTS[1:6])
tell("ranked", [each["corpus_id"] for each in ranked])
tell("examples", InputExample(texts=["a", "b"], label=1.0).label)
