package main

import (
	"fmt"
	"slices"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/chat"
	"github.com/draftmill/draftmill/storage"
)

// conversations says how the target chats, by the files of its folder; nil
// without --chat.
func conversations(cfg configs.Config, models *app.Models, target *ort.Bundle, ref pipeline.Model, info storage.Info) (*pipeline.Chat, error) {
	if !cfg.Chat {
		return nil, nil
	}
	source, err := chat.Read(target.Dir)
	if err != nil {
		return nil, err
	}
	c := &pipeline.Chat{
		Template: source.Template, Tokens: source.Tokens,
		System: cfg.System, Date: cfg.ChatDate, Messages: info.Columns.Messages,
	}
	tokenizer, ends, err := models.Words(cfg.Target, ref)
	if err != nil {
		return nil, err
	}
	end, found, err := c.Check(tokenizer)
	if err != nil {
		return nil, fmt.Errorf("chat with the model %s: %w", target.Dir, err)
	}
	if found && !slices.Contains(ends, end) {
		c.End = []int32{end}
	}
	return c, nil
}
